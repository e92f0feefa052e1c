"""The studio: one live page on this machine, where a model trains while it is watched.

    serving.py    a socket, a token, and the server until Ctrl-C
    app.py        what is answered at which address; guard.py: to whom
    sides.py      one model that trains beside another, or alone: its two processes, and the latest frame of it
    lines.py      how processes talk: JSON over pipes, and what becomes of a process whose other end is gone
    learner.py    the process that trains; live.py: training step by step, changed while it goes on
    viewer.py     the process that looks, at copies of the weights, so that drawing never slows training

Imported by the command alone, and needed by nothing else.
"""
