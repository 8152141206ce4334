"""Datasets in the formats of others: Megatron, WebDataset, MDS."""

from threefs_data.interchange.conversion import FORMATS, Transferred, export_dataset, import_dataset

__all__ = ["FORMATS", "Transferred", "export_dataset", "import_dataset"]
