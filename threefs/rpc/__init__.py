"""Calls between processes: frames over streams for data, gRPC for control."""
