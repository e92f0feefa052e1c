"""A server of predictions and texts: `cutaway serve`. One run, one server; the model runs in a process of its
own, and large requests are computed in a second one.

app        what is answered at which address
guard      who is answered; the count of what is being answered
inputs     from a request to what the run's preprocessing takes
bounds     how much one request may hold
process    a process in which the model runs, and how it is asked and replaced
predicting what a run says of several requests at once
writing    from a request to a text, token after token
engine     batches and tokens in turn, and large requests apart from them
openai     the shapes of OpenAI's completions and chat
metrics    what is counted, as Prometheus reads it
describing the OpenAPI document
server     from the socket to the graceful end
"""
