"""Make tests/fixtures/kaldi_hmm.json: answers of Kaldi's own code for a topology, trees and transition models
of these tests.

The oracle is the `kaldi-hmm-gmm` wheel (Kaldi's HmmTopology, ContextDependency, TransitionModel compiled in).
It is too fragile to be a dependency of the tests: it deadlocks when kaldifst is imported first, and needs an
older kaldifst than the others. So its answers are kept.

    python3 -m venv /tmp/kaldi_hmm
    /tmp/kaldi_hmm/bin/pip install kaldi-hmm-gmm==1.1.4 kaldifst==1.7.17 numba
    PYTHONPATH=. /tmp/kaldi_hmm/bin/python tests/hmm/make_kaldi_fixture.py
"""

import json
import tempfile
from pathlib import Path

import kaldi_hmm_gmm as khg
import numpy as np

from pyasr.hmm.model.tree import ContextTree

OUT = Path(__file__).parents[1] / "fixtures" / "kaldi_hmm.json"
TOPO = """<Topology>
<TopologyEntry>
<ForPhones> 1 2 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.4 <Transition> 1 0.35 <Transition> 2 0.25 </State>
<State> 1 <PdfClass> 1 <Transition> 0 0.25 <Transition> 1 0.5 <Transition> 2 0.25 </State>
<State> 2 <PdfClass> 2 <Transition> 2 0.7 <Transition> 3 0.3 </State>
<State> 3 </State>
</TopologyEntry>
<TopologyEntry>
<ForPhones> 3 4 5 7 8 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.6 <Transition> 2 0.3 <Transition> 3 0.1 </State>
<State> 2 <PdfClass> 0 <Transition> 3 1.0 </State>
<State> 3 </State>
</TopologyEntry>
</Topology>
"""
TREE = """ContextDependency 3 1 ToPdf TE 1 9 ( NULL TE -1 3 ( CE 0 CE 1 CE 2 )
SE -1 [ 0 1 ]
{ CE 3 CE 4 }
SE 0 [ 0 3 4 ]
{ SE -1 [ 0 ]
{ CE 9 SE 2 [ 5 7 8 ]
{ CE 5 CE 6 }
}
CE 7 }
TE -1 2 ( CE 8 SE 2 [ 0 ]
{ CE 10 CE 11 }
)
TE 2 9 ( CE 12 CE 12 CE 13 CE 13 CE 14 CE 14 CE 14 CE 15 CE 9 )
NULL TE -1 2 ( CE 16 CE 17 )
SE 2 [ 1 2 ]
{ TE -1 2 ( CE 18 CE 16 )
SE 0 [ 7 8 ]
{ CE 19 CE 20 }
}
)
EndContextDependency
"""
SETS = [[1, 2], [3, 4], [5], [7, 8]]
SINGLE = [[phone] for phone in (1, 2, 3, 4, 5, 7, 8)]


def kaldi_tree(text: str):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tree"
        path.write_text(text)
        ContextTree.read(path).write(path)
        content = path.read_bytes()[2:]
    tree = khg.ContextDependency.__new__(khg.ContextDependency)
    tree.__setstate__((list(np.frombuffer(content, np.int8).tolist()),))
    return tree


def answers(tree) -> list:
    phones = [0, 1, 2, 3, 4, 5, 7, 8]
    windows = [[left, centre, right] for left in phones for centre in phones[1:] for right in phones]
    found = [
        [*window, pdf_class, tree.compute(window, pdf_class)] for window in windows for pdf_class in range(3)
    ]
    return [[*event, pdf] for *event, (known, pdf) in found if known]


def described(trans) -> dict:
    ids = range(1, trans.num_transition_ids + 1)
    return {
        "tuples": [list(t.__getstate__()[:3]) for t in trans.tuples],
        "pdf": [trans.transition_id_to_pdf(i) for i in ids],
        "phone": [trans.transition_id_to_phone(i) for i in ids],
        "is_final": [bool(trans.is_final(i)) for i in ids],
        "is_self_loop": [bool(trans.is_self_loop(i)) for i in ids],
        "log_probs": list(map(float, trans.log_probs)),
        "non_self_loop_log_probs": list(map(float, trans.non_self_loop_log_probs)),
    }


def updated(tree, topo, counts) -> dict:
    trans = khg.TransitionModel(tree, topo)
    gain, count = trans.mle_update(np.array(counts), khg.MleTransitionUpdateConfig())
    return {"counts": counts, "gain": gain, "count": count, "log_probs": list(map(float, trans.log_probs))}


def gaussians() -> list:
    rng = np.random.default_rng(0)
    rows = []
    for count in (0.0, 1.0, 2.0, 30.0):
        x = rng.standard_normal((max(int(count), 1), 3)) * [1.0, 0.05, 3.0]
        x = x if count else x * 0
        kaldi = khg.GaussClusterable(x.sum(0), (x**2).sum(0), 0.01, count)
        rows.append({"sums": [count, *x.sum(0), *(x**2).sum(0)], "objf": kaldi.objf()})
    return rows


def main():
    topo = khg.HmmTopology()
    topo.read(TOPO)
    num_classes = list(topo.get_phone_to_num_pdf_classes())
    tree = kaldi_tree(TREE)
    trans = khg.TransitionModel(tree, topo)
    rng = np.random.default_rng(1)
    counts = np.round(rng.gamma(0.5, 40.0, trans.num_transition_ids + 1), 2).tolist()
    mono = {
        name: bytes(
            b % 256 for b in khg.monophone_context_dependency_shared(sets, num_classes).__getstate__()[0]
        ).hex()
        for name, sets in (("sets", SETS), ("single", SINGLE))
    }
    content = {
        "made_by": "kaldi-hmm-gmm 1.1.4, see tests/hmm/make_kaldi_fixture.py",
        "topo": TOPO,
        "tree": TREE,
        "answers": answers(tree)[::7],
        "transitions": described(trans),
        "update": updated(tree, topo, counts),
        "gaussians": gaussians(),
        "sets": SETS,
        "single": SINGLE,
        "mono": mono,
    }
    OUT.write_text(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
