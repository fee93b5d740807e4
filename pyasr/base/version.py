"""The version of pyasr, by semantic versioning. CHANGELOG.md lists the changes of each version."""

VERSION = "0.1.0"
