"""The operations of the meta service, one per module: each is a function from a context and a request to a reply."""
