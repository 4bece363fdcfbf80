"""A hook of MkDocs: documents that lie beside the code become pages, and links to source files lead to copies of them.

README.md is the site's first page. Markdown of other folders keeps its path. A link to any other file of the
repository, such as a header, becomes a link to that file's text, which the site then carries.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/gpu/RESULTS.md", "tests/gpu/LOG.md",
             "tests/bench/LOG.md"]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def page_of(path: str) -> str:
    """The page that a file of the repository is, by its path there: docs/cli.md is cli.md."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def path_of(page: str) -> str:
    """The inverse of page_of: the path in the repository of a page."""
    if page == "index.md":
        return "README.md"
    return page if page in DOCUMENTS else f"docs/{page}"


def relinked(text: str, page: str, files: Files, config: MkDocsConfig) -> str:
    """The text of a page with the links that lead out of docs/ changed to pages and copies of the site."""
    here = posixpath.dirname(path_of(page))

    def change(link: re.Match[str]) -> str:
        target, hash_, anchor = link[2].partition("#")
        if not target or ":" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(here, target))
        if not (ROOT / path).is_file():
            return link[0]  # MkDocs says which page has it
        place = page_of(path) if path.startswith("docs/") or path in DOCUMENTS else f"source/{path}.txt"
        if place.startswith("source/") and files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
        return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(page) or '.')}{hash_}{anchor}{link[3]}"

    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("`") else LINK.sub(change, part) for part in parts)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in DOCUMENTS:
        files.append(File.generated(config, page_of(path), abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "wide.css", abs_src_path=str(Path(__file__).with_name("wide.css"))))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return relinked(markdown, page.file.src_uri, files, config)
