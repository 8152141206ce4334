from deploy.check_compatibility import shared


def test_requirements_of_others_count_where_they_apply_and_are_about_our_packages() -> None:
    wanted = [
        "protobuf<7,>=6.31.1",
        "numpy",
        "cupy-cuda13x>=13",
        "Prometheus_Client<=0.24.1",
        'grpcio>=1.78; platform_system == "Windows"',
        'aiofiles>=1; extra == "all"',
    ]
    ours = ["protobuf", "numpy", "prometheus-client", "grpcio", "aiofiles"]
    assert shared(wanted, ours) == ["protobuf<7,>=6.31.1", "Prometheus_Client<=0.24.1"]
