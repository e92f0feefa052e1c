"""The studio: a live page on this machine that shows a model during training.

    server.py     socket, token, and the server until Ctrl-C
    app.py        routes and handlers; guard.py: access control
    sessions.py   one model in training (a side) and its latest frame; two sides can be compared
    workers.py    the two processes of a side; ipc.py: their messages, JSON over pipes
    learner.py    the process that trains; trainer.py: training step by step, with settings that can change
    viewer.py     the process that computes views, on copies of the weights, so that drawing never slows training

Only the command imports this package.
"""
