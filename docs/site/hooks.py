"""Pages of the site that lie outside of docs/, and links to them.

Links in the repository lead from file to file, so that they work where somebody reads the files. Here each is turned
into the one that leads to the same page of the site.
"""

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
#: Path in the repository -> page of the site.
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "report.md",
    "deploy/README.md": "daemons.md",
}
_INSIDE = {page: path for path, page in OUTSIDE.items()}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=os.fspath(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return rewritten(markdown, page.file.src_uri)


def rewritten(markdown: str, page: str) -> str:
    """The text of a page with links that lead to pages of the site. Other files of the repository are only named."""
    folder = posixpath.dirname(_INSIDE.get(page, f"docs/{page}"))

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        if path not in OUTSIDE and not path.startswith("docs/") and (ROOT / path).is_file():
            return f"{found[1]} (`{path}`)"
        target = OUTSIDE.get(path, path.removeprefix("docs/"))
        return f"[{found[1]}]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{found[3]})"

    return _LINK.sub(link, markdown)
