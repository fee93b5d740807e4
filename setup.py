"""Metadata and dependencies; what is installed in which version stands in requirements.txt."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
LINES = (HERE / "requirements.txt").read_text().splitlines()

setup(
    name="pyasr",
    version="0.1.0",
    description="A Kaldi-style speech recognition toolkit in Python: GMMs, lattices, and networks trained in parallel over MPI",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["pyasr", "pyasr.*"]),
    install_requires=[line for line in LINES if line and not line.startswith("#")],
)
