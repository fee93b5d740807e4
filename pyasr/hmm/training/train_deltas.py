"""Training of triphone GMMs on features with deltas, on all ranks of one MPI job; see `train_triphones`."""

from __future__ import annotations

from pyasr.hmm.model.gmm_dir import check_phones
from pyasr.hmm.shards.gmm_shard import load_shard
from pyasr.hmm.training.train_gmm import finish, is_finished
from pyasr.hmm.training.train_triphones import TriphoneSpec, train_triphones
from pyasr.lang.lang_dirs.lang_dir import LangDir


def train_rank(spec: TriphoneSpec, comm) -> None:
    """Train on shard `comm.rank + 1` of `comm.size`. Writes a complete GMM directory to `spec.out`."""
    if is_finished(spec.out, comm):
        return
    lang = LangDir(spec.lang)
    check_phones(spec.ali_dir, lang)
    shard = load_shard(spec.data, spec.inputs, lang, comm, spec.train.store, spec.out)
    trainer, _ = train_triphones(spec, lang, shard, comm)
    finish(spec.out, trainer)
