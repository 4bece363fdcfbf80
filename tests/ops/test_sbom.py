"""Bills of materials: as CycloneDX has them, and of what dpkg says is there."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

from environment import environment

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(os.environ.get("KILN_BUILD_DIR", ROOT / "build" / "release")) / "packages"
CHECK = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()) or "") or 0)
"""


def sbom(*arguments: str | Path) -> Any:
    done = subprocess.run([ROOT / "ops" / "sbom", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def dpkg_root(folder: Path) -> Path:
    """A system with three packages, of which one is gone, and one of PyPI's."""
    status = """
Package: libone
Status: install ok installed
Architecture: amd64
Version: 1:2.0+b1
Maintainer: Somebody Else <someone@example.org>
Provides: libvirtual (= 2)
Description: a library

Package: program
Status: install ok installed
Architecture: all
Version: 3
Depends: libvirtual (>= 1) | libother, libnone
Description: a program

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
Description: removed
"""
    (folder / "var/lib/dpkg/info").mkdir(parents=True)
    (folder / "var/lib/dpkg/updates").mkdir()
    (folder / "var/lib/dpkg/status").write_text(status.lstrip())
    (folder / "opt/nvrtc/nvidia_cuda_nvrtc-13.0.88.dist-info").mkdir(parents=True)
    (folder / "opt/nvrtc/nvidia_cuda_nvrtc-13.0.88.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: 13.0.88\nLicense: NVIDIA Proprietary\n")
    return folder


class BillOfMaterials(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def validate(self, made: Any) -> None:
        tools = environment(["cyclonedx-python-lib[json-validation]==11.12.0"])
        if tools is None:
            self.skipTest("PyPI does not give cyclonedx-python-lib")
        done = subprocess.run([tools / "bin" / "python", "-c", CHECK], input=json.dumps(made), capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_system_has_what_is_installed_and_what_that_needs(self) -> None:
        made = sbom("--root", dpkg_root(self.folder), "--name", "kiln/worker", "--version", "0.1.0")
        self.assertEqual([each["purl"] for each in made["components"]],
                         ["pkg:deb/debian/libone@1%3A2.0%2Bb1?arch=amd64", "pkg:deb/debian/program@3?arch=all",
                          "pkg:pypi/nvidia-cuda-nvrtc@13.0.88"])
        self.assertEqual(made["components"][0]["supplier"], {"name": "Somebody Else"})
        needs = {each["ref"]: each.get("dependsOn", []) for each in made["dependencies"]}
        self.assertEqual(needs["pkg:deb/debian/program@3?arch=all"], ["pkg:deb/debian/libone@1%3A2.0%2Bb1?arch=amd64"])
        self.assertEqual(len(needs["kiln/worker@0.1.0"]), 3)
        self.validate(made)

    def test_the_same_system_gives_the_same_text(self) -> None:
        root = dpkg_root(self.folder)
        self.assertEqual(sbom("--root", root), sbom("--root", root))
        self.assertNotEqual(sbom("--root", root, "--version", "2")["serialNumber"],
                            sbom("--root", root)["serialNumber"])

    def test_this_machine_is_described_whole(self) -> None:
        made = sbom("--root", "/")
        listed = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}\n"], capture_output=True, text=True,
                                check=True).stdout.split()
        debian = [each for each in made["components"] if each["purl"].startswith("pkg:deb/")]
        self.assertEqual(len(debian), listed.count("installed"))
        known = {each["bom-ref"] for each in made["components"]}
        for each in made["dependencies"]:
            self.assertLessEqual(set(each.get("dependsOn", [])), known, each["ref"])
        self.validate(made)

    def test_a_package_names_what_it_needs_and_what_was_compiled_in(self) -> None:
        control = self.folder / "package" / "DEBIAN"
        control.mkdir(parents=True)
        (control / "control").write_text(
            "Package: kiln-worker\nVersion: 0.1.0\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n"
            "Depends: g++, libzmq5 (>= 4.3)\nDescription: one\n")
        file = self.folder / "kiln-worker.deb"
        subprocess.run(["dpkg-deb", "--build", self.folder / "package", file], check=True, capture_output=True)
        made = sbom(file)
        self.assertEqual(made["metadata"]["component"]["licenses"], [{"license": {"id": "Apache-2.0"}}])
        ranges = {each["name"]: each.get("properties", [{}])[0].get("value") for each in made["components"]}
        self.assertEqual(ranges["libzmq5"], ">= 4.3")
        self.assertIsNone(ranges["g++"])
        self.assertEqual(ranges["nlohmann-json3-dev"], "compiled in")
        self.validate(made)

    def test_packages_that_were_made_have_one_each(self) -> None:
        packages = sorted(PACKAGES.glob("*.deb"))
        if not packages:
            self.skipTest("ops/package made none yet")
        for package in packages:
            self.validate(sbom(package))

    def test_a_folder_without_dpkg_is_refused(self) -> None:
        done = subprocess.run([ROOT / "ops" / "sbom", "--root", self.folder], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is it the root of a Debian system?", done.stderr)


if __name__ == "__main__":
    unittest.main()
