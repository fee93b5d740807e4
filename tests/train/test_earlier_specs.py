"""Specs that were saved when their classes were declared beside the work."""

import json
from pathlib import Path

import pytest

from pyasr.base import options as opt
from pyasr.decode.rescore_dir import LstmRescoreOptions, LstmRescoreSpec
from pyasr.feats.inputs import InputOptions
from pyasr.train.steps.ctc import CtcSpec, CtcTraining
from pyasr.train.steps.dbn import DbnTraining, PretrainSpec
from pyasr.train.steps.dnn import DnnTraining, TrainSpec
from pyasr.train.steps.lfmmi import LfMmiSpec, LfMmiTraining
from pyasr.train.steps.smbr import SmbrSpec, SmbrTraining
from pyasr.train.steps.virtual import SimulationSpec, VirtualOptions

PATH, INPUT = Path("exp/dnn"), InputOptions(splice_left=2)
TRAIN = TrainSpec(PATH, PATH, INPUT, DnnTraining())
SPECS = {
    "pyasr.train.dnn:TrainSpec": TRAIN,
    "pyasr.train.dbn:PretrainSpec": PretrainSpec(PATH, PATH, INPUT, DbnTraining()),
    "pyasr.train.ctc:CtcSpec": CtcSpec(PATH, PATH, PATH, INPUT, CtcTraining()),
    "pyasr.train.lfmmi:LfMmiSpec": LfMmiSpec(PATH, PATH, INPUT, LfMmiTraining()),
    "pyasr.train.smbr:SmbrSpec": SmbrSpec(PATH, PATH, PATH, PATH, SmbrTraining()),
    "pyasr.train.virtual:SimulationSpec": SimulationSpec(TRAIN, VirtualOptions(num_learners=3)),
    "pyasr.decode.lstm_rescore_dir:LstmRescoreSpec": LstmRescoreSpec(PATH, PATH, PATH, PATH, PATH, PATH, 2, LstmRescoreOptions(), PATH),
}


@pytest.mark.parametrize("spelled", SPECS)
def test_they_are_still_read(spelled, tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps({**opt.to_json(SPECS[spelled]), "type": spelled}))
    assert opt.load(tmp_path / "spec.json") == SPECS[spelled]
