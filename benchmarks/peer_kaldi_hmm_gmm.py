"""Kaldi's graph compiler and aligner on the utterances of a task, for alignment.py; runs in an environment
with kaldi-hmm-gmm.

peer_kaldi_hmm_gmm.py TASK.npz LANG TREE   ->  one line of JSON: graphs_s, align_s (CPU seconds), alignments
"""

import json
import sys
import time

import kaldi_hmm_gmm as khg
import kaldifst  # after kaldi_hmm_gmm: the other way round hangs
import numpy as np


def transition_model(task, tree, lang: str):
    """Kaldi's model with the same topology and tree, and the task's probabilities inserted into its pickled
    state."""
    topology = khg.HmmTopology()
    with open(f"{lang}/topo", encoding="utf-8") as f:
        topology.read(f.read())
    state = list(khg.TransitionModel(tree, topology).__getstate__())
    state[6] = task["log_probs"].astype(np.float32).tolist()
    state[7] = task["non_self_loop_log_probs"].astype(np.float32).tolist()
    for kind in (lambda x: np.asarray(x, np.float32), list):
        model = khg.TransitionModel.__new__(khg.TransitionModel)
        try:
            model.__setstate__((*state[:6], kind(state[6]), kind(state[7])))
            return model
        except RuntimeError:
            continue
    raise SystemExit(
        "this version of kaldi-hmm-gmm pickles transition models in another form; install version 1.1.4"
    )


def acoustic_model(task):
    model = khg.AmDiagGmm()
    weights, means_invvars, inv_vars, offsets = (
        task[name] for name in ("weights", "means_invvars", "inv_vars", "offsets")
    )
    for begin, end in zip(offsets[:-1], offsets[1:]):
        gmm = khg.DiagGmm(int(end - begin), means_invvars.shape[1])
        gmm.set_weights(weights[begin:end])
        own = np.ascontiguousarray(inv_vars[begin:end])
        gmm.set_invvars_and_means(own, np.ascontiguousarray(means_invvars[begin:end] / own))
        gmm.compute_gconsts()
        model.add_pdf(gmm)
    return model


def main(task_path: str, lang: str, tree_path: str) -> None:
    task = np.load(task_path)
    with open(tree_path, "rb") as f:
        content = f.read()
    tree = khg.ContextDependency.__new__(khg.ContextDependency)
    tree.__setstate__((np.frombuffer(content[2:], np.int8),))
    trans, gmms = transition_model(task, tree, lang), acoustic_model(task)
    lexicon = kaldifst.StdVectorFst.read(f"{lang}/L.fst")
    options = khg.TrainingGraphCompilerOptions(transition_scale=0.0, self_loop_scale=0.0, reorder=True)
    compiler = khg.TrainingGraphCompiler(trans, tree, lexicon, [], options)
    words = np.split(task["words"], np.cumsum(task["num_words"])[:-1])
    feats = np.split(task["feats"], np.cumsum(task["num_frames"])[:-1])
    begin = time.process_time()
    graphs = [compiler.compile_graph_from_text(ids.tolist()) for ids in words]
    graphs_s, begin = time.process_time() - begin, time.process_time()
    config, alignments = khg.AlignConfig(beam=10, retry_beam=40, careful=False), []
    for x, graph in zip(feats, graphs):
        khg.add_transition_probs(trans, [], 1.0, 0.1, graph)
        scores = khg.DecodableAmDiagGmmScaled(gmms, trans, x, 0.1)
        alignments.append(khg.align_utterance_wrapper(config, "utt", 0.1, graph, scores, 0, 0, 0, 0.0, 0)[5])
    align_s = time.process_time() - begin
    print(
        json.dumps(
            {
                "graphs_s": graphs_s,
                "align_s": align_s,
                "alignments": [list(map(int, tids)) for tids in alignments],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
