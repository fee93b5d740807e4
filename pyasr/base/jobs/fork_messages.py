"""What run.pl and the process whose forks are its jobs say to each other, for both (`pyasr.base.jobs.job_forks`)."""

READY = b"ready"
MESSAGE_BYTES = 1 << 16
