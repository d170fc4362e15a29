"""What outlives one step of a request: the open memory, connections, unfinished calls, subscriptions."""
