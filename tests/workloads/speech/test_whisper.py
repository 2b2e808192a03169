"""Whisper's modules against transformers', with small random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from headpond.errors import BundleError, EngineFailed
from headpond_workloads.speech.engine.whisper.alignment import cheapest_way
from headpond_workloads.speech.engine.whisper.greedy import Controls, Task
from headpond_workloads.speech.engine.whisper.mel import Mel
from headpond_workloads.speech.engine.whisper.model import Architecture, Encoded, WhisperModel
from headpond_workloads.speech.engine.whisper.weights import whisper_weights
from workloads.speech.conftest import noise

END, VOCAB = 3, 60
HEADS = 2
FRAMES = 200


@pytest.fixture(scope="module")
def reference() -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCAB,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=FRAMES // 2,
        max_target_positions=40,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=END,
        decoder_start_token_id=4,
        init_std=0.4,
    )
    model = WhisperForConditionalGeneration(config)
    model.train(False)
    return model


@pytest.fixture(scope="module")
def model(
    reference: WhisperForConditionalGeneration, tmp_path_factory: pytest.TempPathFactory
) -> WhisperModel:
    path = tmp_path_factory.mktemp("whisper") / "model.safetensors"
    state = {name: each.contiguous() for name, each in reference.state_dict().items()}
    state.pop("proj_out.weight", None)
    save_file(state, path)
    architecture = Architecture(
        heads=HEADS,
        controls=Controls(end=END, silence=5, never=(0, 1), not_first=(2,)),
        alignment_heads=((0, 1), (1, 0)),
    )
    return WhisperModel(whisper_weights(path, "artifacts.weights"), architecture, torch.float32)


def heard(model: WhisperModel, seeds: list[int]) -> Encoded:
    with torch.inference_mode():
        return model.encode([noise(0.3 + 0.4 * seed, seed) for seed in seeds])


def task(most_tokens: int = 12, **given: object) -> Task:
    return Task(prompt=(4, 6), asked_at=0, most_tokens=most_tokens, **given)  # type: ignore[arg-type]


def test_features_equal_those_of_transformers_but_for_loudness() -> None:
    sound = noise(30.0, seed=1)
    expected = WhisperFeatureExtractor(feature_size=80)(  # type: ignore[no-untyped-call]
        sound, sampling_rate=16_000
    )
    theirs = torch.from_numpy(np.asarray(expected["input_features"][0]))
    found = Mel(80).features(sound, len(sound))
    assert found.shape == theirs.shape
    torch.testing.assert_close(found - found.max(), theirs - theirs.max(), atol=2e-3, rtol=0)


def test_an_encoder_that_hears_all_it_can_equals_transformers(
    model: WhisperModel, reference: WhisperForConditionalGeneration
) -> None:
    sound = noise(FRAMES / 100, seed=2)
    features = Mel(80).features(sound, len(sound))
    with torch.inference_mode():
        expected = reference.model.encoder(features[None]).last_hidden_state[0]
        found = model.encode([sound])
    torch.testing.assert_close(found.rows, expected, atol=1e-4, rtol=1e-4)


def test_a_model_that_computes_nan_writes_nothing(model: WhisperModel) -> None:
    encoded = heard(model, [1, 2])
    with torch.inference_mode():
        encoded.rows[-1] = torch.nan
        with pytest.raises(EngineFailed, match="NaN"):
            model.write([task(), task()], encoded)


def test_texts_equal_those_of_transformers(
    model: WhisperModel, reference: WhisperForConditionalGeneration
) -> None:
    sound = noise(FRAMES / 100, seed=4)
    with torch.inference_mode():
        encoded = model.encode([sound])
        (written,) = model.write([task()], encoded)
        token_ids = [4, 6]
        for _ in range(12):
            logits = reference(
                encoder_outputs=(encoded.rows[None],), decoder_input_ids=torch.tensor([token_ids])
            ).logits[0, -1]
            logits[[0, 1, *([2] if len(token_ids) == 2 else [])]] = -torch.inf
            token_ids.append(int(logits.argmax()))
            if token_ids[-1] == END:
                break
    expected = [token_id for token_id in token_ids[2:] if token_id != END]
    assert len(expected) > 2
    assert written.token_ids == expected


def test_utterances_together_are_written_as_alone(model: WhisperModel) -> None:
    seeds = [1, 3, 2, 4]
    alone = []
    with torch.inference_mode():
        for seed in seeds:
            alone += model.write([task()], heard(model, [seed]))
        together = model.write([task() for _ in seeds], heard(model, seeds))
    assert len({tuple(each.token_ids) for each in alone}) > 1
    for one, other in zip(together, alone, strict=True):
        assert one.token_ids == other.token_ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
        assert one.silence == pytest.approx(other.silence, abs=1e-6)


@pytest.mark.parametrize("wrong_from", [0, 3, 99])
def test_a_draft_changes_nothing(model: WhisperModel, wrong_from: int) -> None:
    with torch.inference_mode():
        encoded = heard(model, [2])
        (expected,) = model.write([task()], encoded)
        draft = [
            token_id if at < wrong_from else 7 for at, token_id in enumerate(expected.token_ids)
        ]
        (found,) = model.write([task(draft=tuple(draft))], encoded)
    assert found.token_ids == expected.token_ids
    assert found.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


def test_fixed_tokens_stay_whatever_the_model_thinks(model: WhisperModel) -> None:
    with torch.inference_mode():
        encoded = heard(model, [2])
        (found,) = model.write([task(fixed=(9, 8, 7))], encoded)
    assert found.token_ids[:3] == [9, 8, 7]


def test_varied_text_has_no_three_tokens_twice(model: WhisperModel) -> None:
    with torch.inference_mode():
        (found,) = model.write([task(most_tokens=30, varied=True)], heard(model, [3]))
    triples = [tuple(found.token_ids[at : at + 3]) for at in range(len(found.token_ids) - 2)]
    assert len(triples) == len(set(triples))


def test_a_text_ends_where_it_must(model: WhisperModel) -> None:
    with torch.inference_mode():
        (found,) = model.write([task(most_tokens=200)], heard(model, [3]))
    assert found.ended
    assert len(found.token_ids) <= 40


def test_tokens_have_times_within_the_utterance(model: WhisperModel) -> None:
    with torch.inference_mode():
        encoded = heard(model, [3])
        (written,) = model.write([task()], encoded)
        times = model.times(encoded, (4, 6), written.token_ids)
    assert len(times) == len(written.token_ids) + 1
    assert times == sorted(times)
    assert 0.0 <= times[-1] <= 1.5


def test_the_cheapest_way_is_found() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        rows, columns = rng.integers(1, 5), rng.integers(5, 9)
        stairs = np.sort(rng.choice(np.arange(1, columns), rows - 1, replace=False))
        costs = np.ones((rows, columns), np.float32)
        row = np.searchsorted(stairs, np.arange(columns), side="right")
        costs[row, np.arange(columns)] = 0.0
        assert cheapest_way(costs) == [0, *stairs.tolist()]


def test_weights_that_lack_something_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"model.encoder.conv1.weight": torch.zeros(2)}, path)
    with pytest.raises(BundleError, match="lack"):
        whisper_weights(path, "artifacts.weights")
