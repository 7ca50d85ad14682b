"""A turn, from the reservation of its input to its one exit.

`driver` drains turns; `turn` is the scratch of one and its handlers, `states` the table they walk; `boundary`, `step`, `request`,
`attempt`, `batch`, `pipeline` its parts; `commands`, `respond`, `surfacing`, `approving`, `rendering` and `runtime_context`
serve a state or part each; `recovery` and `suspects` take up what a crash left; `closing` and `child_end` write the end.
"""
