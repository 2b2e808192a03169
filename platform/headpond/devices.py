"""Devices to plan for: how much they hold, and how fast they are at most."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

import psutil
import yaml
from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError

from headpond.errors import InvalidRequest

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_G, _T = 1e9, 1e12


class Device(BaseModel):
    """One device.

    Attributes:
        name: What it is called.
        kind: `cpu` or `cuda`, as workloads name what they run on.
        memory_bytes: What it holds; of a CPU, of its machine.
        reserved_bytes: Of these, what no bundle gets: a GPU's context and workspaces.
        bytes_per_s: The most it reads from memory.
        operations_per_s: The most additions and multiplications of dense products, by dtype;
            of a CPU on one core.
        source: Where the figures are from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: str = "cuda"
    memory_bytes: Annotated[ByteSize, Field(gt=0)]
    reserved_bytes: ByteSize = ByteSize(0)
    bytes_per_s: Rate
    operations_per_s: Annotated[Mapping[str, Rate], Field(min_length=1)]
    source: str = "its file"

    def operations(self, dtype: str, threads: int) -> float:
        """Return the most operations a second in a dtype; of an unknown one as in float32.

        Args:
            dtype: What is computed in.
            threads: Cores of a CPU; a GPU is used as a whole.
        """
        known = self.operations_per_s
        rate = known.get(dtype) or known.get("float32") or min(known.values())
        return rate * threads if self.kind == "cpu" else rate

    @classmethod
    def find(cls, name: str) -> Self:
        """Return a device of the table, or the one that a YAML file describes.

        Raises:
            InvalidRequest: There is none of that name, or the file does not describe one.
        """
        if name.endswith((".yaml", ".yml")):
            return cls._read(Path(name))
        table = {device.name: device for device in _table()}
        if name not in table:
            known = ", ".join(table)
            raise InvalidRequest(
                f"there is no device {name!r}; there are {known}, and YAML files", param="device"
            )
        return cls.model_validate(table[name].model_dump())

    @classmethod
    def _read(cls, path: Path) -> Self:
        try:
            return cls.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InvalidRequest(f"{path} can't be read: {error}", param="device") from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InvalidRequest(f"{path}: {field}: {first['msg']}", param="device") from None


def _table() -> tuple[Device, ...]:
    return (
        Device(
            name="cpu",
            kind="cpu",
            memory_bytes=ByteSize(psutil.virtual_memory().total),
            bytes_per_s=44 * _G,
            operations_per_s={"float32": 262 * _G, "bfloat16": 524 * _G, "int8": 1048 * _G},
            source="this machine's memory; speed of one core of an AMD EPYC (Zen 5) at 4.1 GHz "
            "with two 512-bit units, and reads of memory as measured on two",
        ),
        _gpu("h200", 141, 4.8, 989.4, 66.9, "NVIDIA H200 SXM datasheet, dense"),
        _gpu("h100", 80, 3.35, 989.4, 66.9, "NVIDIA H100 SXM datasheet, dense"),
        _gpu("a100-80", 80, 2.039, 312, 19.5, "NVIDIA A100 80GB SXM datasheet, dense"),
        _gpu("a100-40", 40, 1.555, 312, 19.5, "NVIDIA A100 40GB SXM datasheet, dense"),
        _gpu("l40s", 48, 0.864, 362, 91.6, "NVIDIA L40S datasheet, dense"),
        _gpu("l4", 24, 0.3, 121, 30.3, "NVIDIA L4 datasheet, dense"),
    )


def _gpu(
    name: str, memory_gb: float, terabytes_s: float, half_t: float, float32_t: float, source: str
) -> Device:
    """Return a GPU from its datasheet, which counts in powers of ten."""
    return Device(
        name=name,
        memory_bytes=ByteSize(int(memory_gb * _G)),
        reserved_bytes=ByteSize(2**30),
        bytes_per_s=terabytes_s * _T,
        operations_per_s={
            "bfloat16": half_t * _T,
            "float16": half_t * _T,
            "float32": float32_t * _T,
            "int8": 2 * half_t * _T,
        },
        source=source,
    )
