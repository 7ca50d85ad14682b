"""`callboard chat`, in parts.

Pure: `keys` (bytes to keys), `editor` (keys to a line), `flow` (text to rows), `frame` (rows to what a terminal is sent),
`transcript` (records to what a person sees). Around them: `terminal` (raw mode, one painter), `session` (a person at a terminal),
`pipe` (lines in, lines out). `offline` is the model that answers without a key.
"""
