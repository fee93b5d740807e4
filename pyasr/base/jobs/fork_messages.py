"""Constants of the protocol between run.pl and the process that forks its jobs
(`pyasr.base.jobs.job_forks`)."""

READY = b"ready"
MESSAGE_BYTES = 1 << 16
