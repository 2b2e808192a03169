from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import processors

from headpond.errors import BundleError, InvalidRequest
from headpond_workloads.encoders.tokenizer import Tokenizer, read_tokenizer
from workloads.encoders.tiny import VOCAB, make_tokenizer, save_tiny, with_file

CLS, SEP = 2, 3


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(make_tokenizer(), len(VOCAB))


def test_the_files_own_truncation_and_padding_are_off(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode("the water mill", "input")) == 3
    assert len(tokenizer.encode("a b c d e f g h i j k l", "input")) == 12


def test_special_tokens_lie_around_texts_with_their_types(tokenizer: Tokenizer) -> None:
    single = tokenizer.single.around([10, 11])
    assert single.token_ids.tolist() == [CLS, 10, 11, SEP]
    assert single.type_ids.tolist() == [0, 0, 0, 0]
    pair = tokenizer.pair.around([10], [11, 12])
    assert pair.token_ids.tolist() == [CLS, 10, SEP, 11, 12, SEP]
    assert pair.type_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert tokenizer.single.around([]).token_ids.tolist() == [CLS, SEP]
    assert tokenizer.pair.around([], []).token_ids.tolist() == [CLS, SEP, SEP]


def test_framed_tokens_are_those_of_the_library() -> None:
    library = make_tokenizer()
    library.no_truncation()
    library.no_padding()
    texts = ("The water,", "a mill! zzz 東")
    tokenizer = Tokenizer(make_tokenizer(), len(VOCAB))
    ids = [tokenizer.encode(text, "input") for text in texts]
    for ours, theirs in (
        (tokenizer.single.around(ids[0]), library.encode(texts[0])),
        (tokenizer.pair.around(*ids), library.encode(*texts)),
    ):
        assert ours.token_ids.tolist() == theirs.ids
        assert ours.type_ids.tolist() == theirs.type_ids


def test_robertas_pairs_have_two_separators() -> None:
    backend = make_tokenizer()
    backend.post_processor = processors.RobertaProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer = Tokenizer(backend, len(VOCAB))
    assert tokenizer.pair.around([10], [11]).token_ids.tolist() == [CLS, 10, SEP, SEP, 11, SEP]


@pytest.mark.parametrize("token_id", [-1, len(VOCAB), 2**40])
def test_ids_out_of_the_vocabulary_are_refused(tokenizer: Tokenizer, token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=str(token_id)) as refusal:
        tokenizer.encode([10, token_id], "input.3")
    assert refusal.value.param == "input.3"


def test_half_a_character_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="character 1 ") as refusal:
        tokenizer.encode("a\ud83d", "input")
    assert refusal.value.param == "input"


def test_threads_do_not_disturb_each_other(tokenizer: Tokenizer) -> None:
    texts = [f"the water {'a ' * at}mill" for at in range(40)]
    expected = [tokenizer.encode(text, "input") for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: tokenizer.encode(text, "input"), texts * 5))
    assert found == expected * 5


def test_texts_are_put_into_lower_case_where_the_folder_says_so(tmp_path: Path) -> None:
    bundle = save_tiny(tmp_path).bundle
    backend = make_tokenizer()
    backend.normalizer = None
    backend.save(str(bundle.files["tokenizer"]))
    plain = read_tokenizer(bundle, len(VOCAB), types=2)
    lower = with_file(bundle, "sentence_config", {"max_seq_length": 9, "do_lower_case": True})
    lowering = read_tokenizer(lower, len(VOCAB), types=2)
    assert lowering.encode("THE mill", "input") == plain.encode("the mill", "input")
    assert plain.encode("THE mill", "input") != plain.encode("the mill", "input")


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    bundle = save_tiny(tmp_path).bundle
    with pytest.raises(BundleError, match=str(len(VOCAB) - 1)):
        read_tokenizer(bundle, len(VOCAB) - 1, types=2)
    with pytest.raises(BundleError, match="type 1"):
        read_tokenizer(bundle, len(VOCAB), types=1)
