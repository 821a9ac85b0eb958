"""Hugging Face models by name, as folders of bertwright."""

from pathlib import Path

import bertwright
from bertwright.core.cache_folder import cache_folder
from bertwright.core.files import atomic_folder
from bertwright.data.hub.download import local_folder
from bertwright.data.hub.reference import HubReference
from bertwright.interop.huggingface import is_huggingface_folder


def bertwright_folder(model: Path) -> Path:
    """Return a folder of bertwright, given its path or a name on the Hub.

    A Hugging Face model by name is imported into bertwright's cache, once per commit. Paths are
    returned as they are.

    Errors: UserError if the model cannot be downloaded or imported.
    """
    folder = local_folder(model)
    reference = HubReference.of_snapshot(folder)
    if reference is None or not is_huggingface_folder(folder):
        return folder
    from bertwright.models.saving import is_model_folder

    if is_model_folder(folder):
        return folder
    name = f"{reference.repository.replace('/', '--')}-{reference.revision}"
    imported = cache_folder() / "imported" / bertwright.__version__ / name
    if not is_model_folder(imported):
        from bertwright.interop.huggingface.importer import load_huggingface

        with atomic_folder(imported) as temporary:
            load_huggingface(folder).save(temporary)
    return imported
