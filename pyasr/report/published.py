"""Published results of parallel training, to stand beside ours. Keys are our names of schemes, then what the table varies.

SU         H. Su, H. Chen, H. Xu, arXiv:1507.01239, and its draft's times: Switchboard, 300 h, averages every 10 minibatches of 1024, K20
POSTER     H. Su, H. Chen, "Parallelization of neural network training using model averaging and butterfly mixing"
IBM        W. Zhang, X. Cui, et al.: arXiv:1904.04956 (AD-PSGD, 16 P100), arXiv:1907.05701 (H-ADPSGD), arXiv:2110.11199 (rings, D1D; 16 V100
           and more), arXiv:2112.01433 (large batches)
CHAN       W. Chan, GTC 2015, a parameter server and 2 to 5 shards; W. Chan, I. Lane, arXiv:1504.01482, a server and 3 shards
BMUF       arXiv:1703.05880: LibriSpeech, a DNN on up to 8 GPUs, mixing every 5 minibatches of 4096
"""

SPEED_UPS = {  # by source, scheme and learners; the server of `asgd` is one of them
    "arXiv:1507.01239": {
        "allreduce": {2: 1.39, 4: 2.65, 8: 4.99, 16: 9.32, 32: 16.70},
        "butterfly": {2: 1.45, 4: 2.83, 8: 5.44, 16: 10.10, 32: 18.02},
    },
    "poster": {
        "allreduce": {2: 1.94, 4: 3.47, 8: 6.52, 16: 9.41},
        "butterfly": {4: 3.60, 8: 6.59, 16: 11.32},
        "ring": {4: 3.58, 8: 6.52, 16: 12.75},
    },
    "arXiv:1703.05880": {
        "allreduce": {4: 2.68, 8: 4.56},
        "asgd": {4: 2.74, 8: 4.72},
        "bmuf": {4: 2.68, 8: 4.56},
        "easgd": {4: 2.80, 8: 5.00},
    },
    "GTC 2015, time to 44 %": {"asgd": {3: 2 * 0.814, 4: 3 * 0.815, 5: 4 * 0.746, 6: 5 * 0.682}},
    "arXiv:1504.01482": {"asgd": {4: (51.5 / 17) / (16.8 / 14)}},  # hours of an epoch
}
SU_WER_BY_PERIOD = {10: 15.1, 20: 15.8}         # 16 GPUs, SWB
SU_WER_BY_MINIBATCH = {256: 15.6, 1024: 15.1}   # 16 GPUs, SWB
SU_WER_BY_GRADIENT = {("SGD", 1): 14.9, ("SGD", 16): 16.3, ("natural gradient", 1): 14.7, ("natural gradient", 8): 15.1,
                      ("natural gradient", 16): 15.1}  # and GPUs, SWB  # fmt: skip

POSTER_WER = {
    "allreduce": {1: 18.4, 2: 17.9, 4: 18.3, 8: 18.3, 16: 18.7},
    "butterfly": {4: 18.5, 8: 18.7, 16: 20.6},
    "ring": {4: 18.5, 8: 19.6, 16: 22.1},
}
BMUF_WER = {  # LibriSpeech test-other
    "allreduce": {4: 16.03, 8: 16.55},
    "asgd": {4: 15.55, 8: 16.20},
    "bmuf": {4: 15.01, 8: 15.66},
    "easgd": {4: 16.02, 8: 16.64},
}
BMUF_WER_BY_PERIOD = {"bmuf": {5: 15.01, 80: 14.87}, "easgd": {5: 16.02, 64: 15.97}}  # 4 GPUs, test-other

IBM_SLOWDOWN = {  # time of an epoch by how slow one learner of 16 is
    "arXiv:1904.04956": {
        "gradient": {1: 1.09, 2: 1.67, 10: 6.24, 100: 57.73},
        "d1d": {1: 1.03, 2: 1.63, 10: 6.46, 100: 60.80},
        "adpsgd": {1: 0.87, 2: 0.89, 10: 0.91, 100: 0.92},
    },
    "arXiv:2110.11199": {
        "adpsgd fixed-ring": {1: 1.0, 5: 1.1, 10: 1.1, 100: 1.3},
        "adpsgd random-ring": {1: 1.0, 5: 1.1, 10: 1.1, 100: 1.2},
        "d1d": {1: 1.0, 5: 4.1, 10: 8.7, 100: 91.7},
    },
}
IBM_SPEED_UP = [  # source, scheme, learners, speed-up
    ("arXiv:1904.04956", "adpsgd", 16, 10.88),
    ("arXiv:1904.04956", "gradient", 16, 8.70),
    ("arXiv:1904.04956", "d1d", 16, 9.26),
    ("arXiv:2110.11199", "d1d", 16, 16.8),
    ("arXiv:2110.11199", "adpsgd fixed-ring", 16, 99.00 / 15.24),
    ("arXiv:2110.11199", "adpsgd random-ring", 16, 99.00 / 15.19),
    ("arXiv:1907.05701", "hadpsgd", 64, 40.0),
]
IBM_LOSS_BY_BATCH = {  # held-out, arXiv:2112.01433; 10.37 = ln 32000, no better than chance
    "gradient": {2048: 1.58, 4096: 10.37, 8192: 10.37},
    "dpsgd fixed-ring": {2048: 1.59, 4096: 1.60, 8192: 1.66},
}
IBM_BATCH = 8192  # with which these learn, and synchronous SGD diverges
IBM_LEARNS = {
    "dpsgd fixed-ring": "arXiv:2112.01433",
    "adpsgd fixed-ring": "arXiv:2110.11199",
    "adpsgd random-ring": "arXiv:2110.11199",
    "d1d": "arXiv:2110.11199",
    "adpsgd": "arXiv:1907.05701",
    "hadpsgd": "arXiv:1907.05701",
}
