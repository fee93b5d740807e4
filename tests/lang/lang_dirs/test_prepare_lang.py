import itertools
import math
import re
import subprocess
import sys
from pathlib import Path

import kaldi_binaries
import numpy as np
import pytest
from fst_paths import best_cost, random_paths
from toy_language import write_toy_lang

from pyasr.base.errors import UserError
from pyasr.hmm.model.topology import Topology
from pyasr.hmm.model.tree import monophone_tree
from pyasr.io.openfst import read_fst, write_fst
from pyasr.lang.lang_dirs.check_lang import find_problems
from pyasr.lang.lang_dirs.lang_dir import LangDir
from pyasr.lang.lang_dirs.prepare_lang import LangOptions, positioned, silence_topology, write_lang
from pyasr.lang.lexicons.dict_dir import DictDir
from pyasr.lang.lexicons.lexicon import Lexicon
from pyasr.lang.lexicons.lexicon_fst import add_disambig

ROOT = Path(__file__).resolve().parents[3]


def small_dict(extra_questions=()):
    lexicon = Lexicon()
    for word, probability, phones in (
        ("<unk>", 1, "SPN"),
        ("a", 1, "AH"),
        ("a", 0.5, "EY"),
        ("cat", 1, "K AE T"),
        ("kat", 1, "K AE T"),
        ("cats", 1, "K AE T S"),
        ("eh", 1, "EY"),
    ):
        lexicon.add(word, tuple(phones.split()), probability)
    return DictDir(
        lexicon,
        [("SIL",), ("SPN",)],
        [("AE",), ("AH",), ("EY",), ("K",), ("S", "T")],
        "SIL",
        list(extra_questions),
    )


def make(tmp_path, content=None, **options):
    out = tmp_path / "lang"
    out.mkdir()
    write_lang(content or small_dict(), "<unk>", LangOptions(**options), out)
    return LangDir(out)


def text(lang, name):
    return (lang.path / name).read_text().splitlines()


def test_symbols_are_numbered_like_kaldi(tmp_path):
    lang = make(tmp_path)
    assert text(lang, "words.txt") == [
        "<eps> 0",
        "<unk> 1",
        "a 2",
        "cat 3",
        "cats 4",
        "eh 5",
        "kat 6",
        "#0 7",
        "<s> 8",
        "</s> 9",
    ]
    assert text(lang, "phones.txt")[:13] == [
        "<eps> 0",
        "SIL 1",
        "SIL_B 2",
        "SIL_E 3",
        "SIL_I 4",
        "SIL_S 5",
        "SPN 6",
        "SPN_B 7",
        "SPN_E 8",
        "SPN_I 9",
        "SPN_S 10",
        "AE_B 11",
        "AE_E 12",
    ]
    assert [line.split()[0] for line in text(lang, "phones.txt")[-4:]] == ["#0", "#1", "#2", "#3"]
    assert text(lang, "oov.txt") == ["<unk>"] and text(lang, "oov.int") == ["1"]


def test_phone_lists_are_written(tmp_path):
    lang = make(tmp_path, small_dict([("AE", "SPN")]))
    assert text(lang, "phones/silence.csl") == ["1:2:3:4:5:6:7:8:9:10"]
    assert lang.context_indep_phones == lang.silence_phones == list(range(1, 11))
    assert lang.optional_silence == 1
    assert text(lang, "phones/sets.txt")[-1] == "S_B S_E S_I S_S T_B T_E T_I T_S"
    assert text(lang, "phones/roots.txt")[0] == "shared split SIL SIL_B SIL_E SIL_I SIL_S"
    assert lang.roots[-1] == (True, True, lang.sets[-1])
    assert text(lang, "phones/extra_questions.txt")[0] == "AE_B AE_E AE_I AE_S SPN SPN_B SPN_E SPN_I SPN_S"
    assert text(lang, "phones/extra_questions.txt")[1:3] == [
        "AE_B AH_B EY_B K_B S_B T_B",
        "AE_E AH_E EY_E K_E S_E T_E",
    ]
    assert text(lang, "phones/extra_questions.txt")[5:7] == ["SIL SPN", "SIL_B SPN_B"]
    assert lang.word_boundary[1] == "nonword" and lang.word_boundary[lang.phones["T_E"]] == "end"
    assert text(lang, "phones/align_lexicon.txt")[:3] == ["<eps> <eps> SIL", "<unk> <unk> SPN_S", "a a AH_S"]
    assert lang.disambig_phones == [lang.phones[f"#{n}"] for n in range(4)]
    assert lang.base_phone(lang.phones["T_E"]) == "T" and lang.base_phone(1) == "SIL"


def test_shared_silence_and_position_independent_phones(tmp_path):
    lang = make(tmp_path, position_dependent_phones=False, share_silence_phones=True)
    assert lang.roots[0] == (False, False, [1, 2]) and lang.word_boundary == {}
    assert lang.lexicon.pronunciations("cat") == [("K", "AE", "T")]
    assert find_problems(lang.path) == []


@pytest.mark.parametrize("shared", [False, True])
def test_sets_equal_roots_without_flags(tmp_path, shared):
    lang = make(tmp_path, share_silence_phones=shared)
    for ending in ("txt", "int"):
        assert text(lang, f"phones/sets.{ending}") == [
            line.split(maxsplit=2)[2] for line in text(lang, f"phones/roots.{ending}")
        ]
    assert lang.sets[0] == (lang.silence_phones if shared else [1, 2, 3, 4, 5])
    assert find_problems(lang.path) == []


@pytest.mark.parametrize(("shared", "num_pdfs"), [(False, 2), (True, 1)])
def test_monophones_with_shared_silence_have_one_pdf_per_state(tmp_path, shared, num_pdfs):
    lang = make(tmp_path, share_silence_phones=shared)
    topology = Topology.read(lang.path / "topo")
    tree = monophone_tree(lang.sets, {phone: topology.num_pdf_classes(phone) for phone in topology.phones})
    for state in range(5):
        assert len({tree.pdf((phone,), state) for phone in lang.silence_phones}) == num_pdfs


def test_lexicon_is_read_back_with_and_without_probabilities(tmp_path):
    lang = make(tmp_path)
    assert lang.lexicon.entries["a"] == {("AH_S",): 1.0, ("EY_S",): 0.5}
    assert sorted(lang.pronunciation_ids[tuple(lang.phones[p] for p in ("K_B", "AE_I", "T_E"))]) == [
        lang.words["cat"],
        lang.words["kat"],
    ]
    (lang.path / "lexiconp.txt").unlink()
    assert LangDir(lang.path).lexicon.entries["a"] == {("AH_S",): 1.0, ("EY_S",): 1.0}


def test_disambiguation_symbols_are_assigned():
    marked, most = add_disambig([("K", "AE", "T"), ("K", "AE", "T"), ("K", "AE", "T", "S"), ("AH",)])
    assert marked == [("K", "AE", "T", "#1"), ("K", "AE", "T", "#2"), ("K", "AE", "T", "S"), ("AH",)]
    assert most == 2


def test_word_positions_are_marked():
    assert positioned(("AH",)) == ("AH_S",) and positioned(("K", "AE")) == ("K_B", "AE_E")


def test_silence_topology_is_a_distribution():
    for states in (silence_topology(5), silence_topology(4), silence_topology(3), silence_topology(1)):
        assert all(abs(sum(p for _, p in state) - 1) < 1e-9 for state in states)


def enumerate_costs(lang, words, sil_prob):
    """All phone strings of a word sequence with their costs, by enumeration of pronunciations and silence in
    each gap."""
    variants = [
        [
            (tuple(lang.phones[p] for p in phones), -math.log(prob))
            for phones, prob in lang.lexicon.entries[word].items()
        ]
        for word in words
    ]
    costs = {}
    for choice in itertools.product(*variants):
        for silences in itertools.product((False, True), repeat=len(words) + 1):
            phones = [lang.optional_silence] * silences[0]
            for (pronunciation, _), silence in zip(choice, silences[1:]):
                phones += [*pronunciation, *[lang.optional_silence] * silence]
            cost = sum(c for _, c in choice) - sum(
                math.log(sil_prob if s else 1 - sil_prob) for s in silences
            )
            costs[tuple(phones)] = min(cost, costs.get(tuple(phones), math.inf))
    return costs


@pytest.mark.parametrize("sil_prob", [0.5, 0.2])
def test_phone_strings_and_costs_equal_enumeration(tmp_path, sil_prob):
    lang = LangDir(write_toy_lang(tmp_path / "lang", seed=3, num_words=15, num_phones=3, sil_prob=sil_prob))
    plain, disambig = read_fst(lang.lexicon_fst), read_fst(lang.lexicon_disambig_fst)
    free = disambig.replaced(
        ilabels=np.where(np.isin(disambig.ilabels, lang.disambig_phones), 0, disambig.ilabels),
        olabels=np.where(disambig.olabels == lang.words["#0"], 0, disambig.olabels),
    )
    rng = np.random.default_rng(0)
    words = sorted(set(lang.lexicon.entries))
    for _ in range(6):
        sequence = [words[i] for i in rng.integers(0, len(words), rng.integers(0, 4))]
        ids = [lang.words[word] for word in sequence]
        for phones, cost in enumerate_costs(lang, sequence, sil_prob).items():
            assert best_cost(plain, phones, ids) == pytest.approx(cost, abs=1e-4)
            assert best_cost(free, phones, ids) == pytest.approx(cost, abs=1e-4)
            assert best_cost(plain, [*phones, lang.phones["P0_S"], 1], ids) == math.inf


def test_disambiguated_lexicon_has_unique_phone_strings(tmp_path):
    lang = LangDir(write_toy_lang(tmp_path / "lang", seed=5, num_words=60, num_phones=2))
    fst = read_fst(lang.lexicon_disambig_fst)
    seen = {}
    for a in np.flatnonzero(fst.olabels):
        for path in chains(fst, a):
            assert (
                not any(path[:n] in seen for n in range(1, len(path) + 1)) or seen.get(path) == fst.olabels[a]
            )
            seen[path] = fst.olabels[a]
    assert len(seen) > 60


def chains(fst, arc):
    """Phone string of the pronunciation that begins with `arc` (both arcs to the end have the same
    labels)."""
    labels, state = [int(fst.ilabels[arc])], int(fst.nextstates[arc])
    loops = {int(s) for s in np.flatnonzero(np.isfinite(fst.finals))}
    while (
        state not in loops
        and fst.arc_offsets[state + 1] - fst.arc_offsets[state] >= 1
        and not is_silence_state(fst, state)
    ):
        a = fst.arc_offsets[state]
        labels.append(int(fst.ilabels[a]))
        state = int(fst.nextstates[a])
    return [tuple(labels)]


def is_silence_state(fst, state):
    return fst.ilabels[fst.arc_offsets[state]] == 1


@kaldi_binaries.needed
def test_lexicon_transducers_equal_kaldi_scripts(tmp_path):
    """Kaldi's add_lex_disambig.pl and make_lexicon_fst.pl on our lexiconp.txt give the same transducer up to
    the numbering of states."""
    lang = LangDir(write_toy_lang(tmp_path / "lang", seed=1))
    scripts = kaldi_binaries.DIRECTORY.parent / "utils"
    last = text(lang, "phones/disambig.txt")[-1]
    marked = tmp_path / "lexiconp_disambig.txt"
    subprocess.run(
        ["perl", scripts / "add_lex_disambig.pl", "--pron-probs", lang.path / "lexiconp.txt", marked],
        check=True,
        capture_output=True,
    )
    for name, lexicon, extra in (
        ("L.fst", lang.path / "lexiconp.txt", []),
        ("L_disambig.fst", marked, [last]),
    ):
        made = subprocess.run(
            ["perl", scripts / "make_lexicon_fst.pl", "--pron-probs", lexicon, "0.5", "SIL", *extra],
            check=True,
            capture_output=True,
        )
        (tmp_path / "L.txt").write_bytes(made.stdout)
        kaldi_binaries.run(
            "fstcompile",
            f"--isymbols={lang.path}/phones.txt",
            f"--osymbols={lang.path}/words.txt",
            tmp_path / "L.txt",
            tmp_path / "L",
        )
        if extra:
            kaldi_binaries.run(
                "fstaddselfloops",
                lang.path / "phones/wdisambig_phones.int",
                lang.path / "phones/wdisambig_words.int",
                tmp_path / "L",
                tmp_path / "L2",
            )
        theirs, ours = read_fst(tmp_path / ("L2" if extra else "L")), read_fst(lang.path / name)
        assert (ours.num_states, ours.num_arcs) == (theirs.num_states, theirs.num_arcs)
        assert sorted(ours.olabels) == sorted(theirs.olabels)
        assert_same_paths(ours, theirs, lang)


def assert_same_paths(ours, theirs, lang):
    for source, other in ((ours, theirs), (theirs, ours)):
        for ilabels, olabels, _ in random_paths(source, 15, stop=0.4):
            assert best_cost(other, ilabels, olabels) == pytest.approx(
                best_cost(source, ilabels, olabels), abs=1e-4
            )


def test_kaldifst_reads_transducers(tmp_path):
    kaldifst = pytest.importorskip("kaldifst")
    lang = make(tmp_path)
    for path in (lang.lexicon_fst, lang.lexicon_disambig_fst):
        fst, own = kaldifst.StdVectorFst.read(str(path)), read_fst(path)
        assert fst.num_states == own.num_states and fst.start == own.start


def test_missing_oov_word_is_reported(tmp_path):
    with pytest.raises(UserError, match="'UNK', is not in the lexicon; add a line such as 'UNK SPN'"):
        write_lang(small_dict(), "UNK", LangOptions(), tmp_path)


def run(*arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )


def test_invalid_dictionary_leaves_no_output(tmp_path):
    directory = tmp_path / "dict"
    directory.mkdir()
    small_dict().write(directory)
    (directory / "nonsilence_phones.txt").write_text("AE\nAH\nEY\nK\nT\n")
    out = tmp_path / "lang"
    done = run("utils/prepare_lang.py", directory, "<unk>", out)
    assert done.returncode == 1 and "the phone S of 'cats' is in neither phone list" in done.stderr
    assert not out.exists() and done.stderr.count("\n") == 1


def test_step_and_validator_from_command_line(tmp_path):
    directory = tmp_path / "dict"
    directory.mkdir()
    small_dict().write(directory)
    out = tmp_path / "lang"
    assert run("utils/prepare_lang.py", directory, "<unk>", out).returncode == 0
    assert "up to date" in run("utils/prepare_lang.py", directory, "<unk>", out).stdout
    assert run("utils/validate_lang.py", out).returncode == 0
    (out / "oov.int").write_text("3\n")
    done = run("utils/validate_lang.py", out)
    assert done.returncode == 1 and "oov.int: must contain 1, the id of <unk>" in done.stdout


def broken(lang, name, change):
    path = lang.path / name
    if change is None:
        path.unlink()
    else:
        path.write_text(change(path.read_text()))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("L.fst", None, "L.fst: missing"),
        ("phones/silence.csl", lambda s: s.replace("1:", "", 1), "silence.csl: differs from silence.txt"),
        ("phones/sets.int", lambda s: s.replace("11", "12", 1), r"sets.int:3: differs from sets.txt"),
        (
            "phones/roots.txt",
            lambda s: s.rsplit("shared", 1)[0],
            "roots.txt: must contain every silence and non-silence phone once",
        ),
        ("words.txt", lambda s: s.replace("#0", "#9"), "words.txt: no '#0'"),
        ("phones.txt", lambda s: s.replace("SIL 1\n", "SIL 1\nSIL 1\n", 1), "SIL occurs twice"),
        ("phones.txt", lambda s: s + "NEW 999\n", "without gaps"),
        ("phones/nonsilence.txt", lambda s: s + "ZZ\n", "phone.s. are not in phones.txt, such as ZZ"),
        (
            "phones/word_boundary.txt",
            lambda s: s.replace("begin", "start", 1),
            "word_boundary.txt:2: expected 'PHONE KIND'",
        ),
        ("topo", lambda s: s.replace(" 10\n", "\n"), "topo: must contain every"),
        ("phones/optional_silence.txt", lambda s: "AE_B\n", "must contain exactly one phone of silence.txt"),
        ("oov.txt", lambda s: "nothing\n", "oov.txt: must contain one word of words.txt"),
    ],
)
def test_validator_reports_problems(tmp_path, name, change, message):
    lang = make(tmp_path)
    assert find_problems(lang.path) == []
    broken(lang, name, change)
    assert any(re.search(message, problem) for problem in find_problems(lang.path)), find_problems(lang.path)


def test_validator_checks_transducers(tmp_path):
    lang = make(tmp_path)
    lang.lexicon_disambig_fst.write_bytes(lang.lexicon_fst.read_bytes())
    assert any("no #0 self-loop" in problem for problem in find_problems(lang.path))
    lexicon = read_fst(lang.lexicon_fst)
    write_fst(
        lang.path / "G.fst",
        lexicon.replaced(ilabels=lexicon.olabels, weights=np.full_like(lexicon.weights, np.inf)),
    )
    assert any(
        re.search(r"G.fst: \d+ arc\(s\) of infinite cost", problem) for problem in find_problems(lang.path)
    )
    lang.lexicon_fst.write_bytes(lang.lexicon_fst.read_bytes()[:100])
    assert any("L.fst" in problem and "truncated" in problem for problem in find_problems(lang.path))


def test_pronunciations_as_ids(tmp_path):
    lang = make(tmp_path)
    words, phones = lang.words, lang.phones
    rows = lang.align_lexicon
    assert rows[0] == (0, (lang.optional_silence,)) and (words["a"], (phones["AH_S"],)) in rows
    assert len(rows) == 1 + sum(1 for _ in lang.lexicon.rows())
    path = lang.path / "phones/align_lexicon.int"
    for line, message in (
        ("7 7", "align_lexicon.int:2: expected 'WORD WORD PHONES'"),
        ("7 seven 8", "not a list of whole numbers"),
    ):
        path.write_text(f"0 0 1\n{line}\n")
        with pytest.raises(UserError, match=message):
            LangDir(lang.path).align_lexicon
    path.unlink()
    with pytest.raises(UserError, match="align_lexicon.int: no such file"):
        LangDir(lang.path).align_lexicon


def test_lang_dir_with_only_silence_is_refused(tmp_path):
    lang = make(tmp_path)
    (lang.path / "phones/nonsilence.int").write_text("")
    with pytest.raises(UserError, match="nonsilence.int: no phones except silence"):
        LangDir(lang.path).real_phones


def test_other_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match="not a language directory"):
        LangDir(tmp_path)
