import shutil
from pathlib import Path

import pytest

from alewm.native import NativeUnavailableError, load_library

with_compiler = pytest.mark.parametrize("compiler", [name for name in ("cc", "gcc", "clang") if shutil.which(name)])


def write_source(folder: Path, answer: str) -> Path:
    folder.mkdir()
    (folder / "answer.h").write_text(f"#define ANSWER {answer}\n")
    (folder / "answer.c").write_text('#include "answer.h"\nint answer(void) { return ANSWER; }\n')
    return folder / "answer.c"


@with_compiler
def test_a_header_is_part_of_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder, answer in (("a", 1), ("b", 2), ("c", 1)):
        assert load_library(write_source(tmp_path / folder, str(answer))).answer() == answer
    assert len(list((tmp_path / "cache" / "alewm").iterdir())) == 2
    assert load_library(tmp_path / "a" / "answer.c", ("-DUNUSED",)).answer() == 1
    assert len(list((tmp_path / "cache" / "alewm").iterdir())) == 3


@with_compiler
def test_a_source_that_does_not_compile_is_refused_with_the_compilers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(NativeUnavailableError, match=rf"(?s){compiler} failed: .*no_such_name"):
        load_library(write_source(tmp_path / "a", "no_such_name"))
    assert not list((tmp_path / "cache" / "alewm").iterdir())
