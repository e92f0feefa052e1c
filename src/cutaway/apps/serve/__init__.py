"""Prediction and text generation server: `cutaway serve`.

One server serves one run. The model runs in a process of its own; large requests are computed in a second one.

    app              routes and the OpenAPI document
    middleware       authentication, Host and Origin checks, metrics for Prometheus
    inputs           from a request to the input of the run's preprocessing
    limits           bounds of a request, timeouts
    prediction       predictions for several requests in one batch
    text_generation  from a request to a text, token by token; also in OpenAI's formats
    engine           process of the model, scheduling of batches, tokens and large requests
    server           from the socket to graceful shutdown
"""
