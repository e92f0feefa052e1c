"""Prediction and text generation server: `cutaway serve`.

One server serves one run. The model runs in a process of its own; large requests are computed in a second one.

    app              routes and handlers
    middleware       authentication, Host and Origin checks, metrics for Prometheus
    inputs           from a request to the input of the run's preprocessing
    request_bounds   limits on the size of one request
    process          the process of the model: start, request, interrupt, restart
    batching         predictions for several requests in one batch
    text_generation  from a request to a text, token by token
    engine           scheduling of batches, tokens and large requests
    openai           request and response formats of OpenAI's completions and chat
    openapi          the OpenAPI document
    server           from the socket to graceful shutdown
"""
