"""HTTP beside the WebSocket, on the same port.

`line` is a connection: h11, deadlines and sizes. `site` answers its requests, one after another: `router` finds the route in the
table of `routes`, `login` and `..access` say who may come, `failures` gives every error its status and its shape. `messages` are
requests and responses as values. `pages` are the files of the inspector.
"""
