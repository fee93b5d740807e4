"""Published results of parallel training, to stand beside ours. Keys are our names of schemes, then what the table varies.

SU       H. Su, H. Chen, H. Xu, arXiv:1507.01239, and its draft's times: Switchboard, 300 h, averages every 10 minibatches of 1024, K20
POSTER   H. Su, H. Chen, "Parallelization of neural network training using model averaging and butterfly mixing"
IBM      W. Zhang et al., arXiv:1904.04956 (16 P100), arXiv:2110.11199 (16 V100), arXiv:2112.01433 (SWB300)
"""

SU_SPEED_UP = {
    "allreduce": {2: 1.39, 4: 2.65, 8: 4.99, 16: 9.32, 32: 16.70},
    "butterfly": {2: 1.45, 4: 2.83, 8: 5.44, 16: 10.10, 32: 18.02},
}
SU_WER_BY_PERIOD = {10: 15.1, 20: 15.8}         # 16 GPUs, SWB
SU_WER_BY_MINIBATCH = {256: 15.6, 1024: 15.1}   # 16 GPUs, SWB
SU_WER_BY_GRADIENT = {"SGD": 16.3, "natural gradient": 15.1}

POSTER_SPEED_UP = {
    "allreduce": {2: 1.94, 4: 3.47, 8: 6.52, 16: 9.41},
    "butterfly": {4: 3.60, 8: 6.59, 16: 11.32},
    "ring": {4: 3.58, 8: 6.52, 16: 12.75},
}
POSTER_WER = {
    "allreduce": {1: 18.4, 2: 17.9, 4: 18.3, 8: 18.3, 16: 18.7},
    "butterfly": {4: 18.5, 8: 18.7, 16: 20.6},
    "ring": {4: 18.5, 8: 19.6, 16: 22.1},
}

IBM_HOURS_BY_SLOWDOWN = {  # hours of an epoch with one slow GPU of 16; SYNC, HYBRID and ADPSGD of arXiv:1904.04956
    "gradient": {1: 1.09, 2: 1.67, 10: 6.24, 100: 57.73},
    "d1d": {1: 1.03, 2: 1.63, 10: 6.46, 100: 60.80},
    "adpsgd": {1: 0.87, 2: 0.89, 10: 0.91, 100: 0.92},
}
IBM_LOSS_BY_BATCH = {  # held-out, arXiv:2112.01433; 10.37 = ln 32000, no better than chance
    "gradient": {2048: 1.58, 4096: 10.37, 8192: 10.37},
    "dpsgd fixed-ring": {2048: 1.59, 4096: 1.60, 8192: 1.66},
}
IBM_CHANCE = 10.37
