"""The same turns on other people's runtimes, each in an environment of its own, as honest as we can make them.

`python -m bench --peers` takes them into the run, so that ratios come from one run on one machine. See README.md here for what
each stores per turn and what it leaves out.

* `environments`: a virtual environment for each peer, made once, with the versions that are written here;
* `cases`: a case for each peer and load, which runs its script in that environment and reads one sample from it;
* `standings`: what the figures say: Callboard's rate over each peer's;
* `scripts/`: one file a peer, which imports nothing of ours but `scripts/turns.py`, the workload.
"""
