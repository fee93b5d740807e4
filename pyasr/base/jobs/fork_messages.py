"""Constants of the protocol of run.pl and the process that forks its jobs (`pyasr.base.jobs.job_forks`)."""

READY = b"ready"
MESSAGE_BYTES = 1 << 16
