"""The package as a whole: who may import whom, what a method must not escape, what is loaded when."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import time
import tomllib
from itertools import chain
from pathlib import Path

import pytest

import cce
from cce.embeddings import METHODS

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
SOURCE = SRC / "cce"
LAB = SRC / "cce_lab"
TESTS = ROOT / "tests"
STOREYS = {  # a package imports only packages above it, and so a storey only storeys above it
    "library": (
        *("version", "lazy", "checks", "text", "budget", "footprint", "schema", "files", "signals", "hashing"),
        *("compiled", "distributed", "indexing", "clustering", "kernels", "embeddings", "collection", "optim"),
        *("reclustering", "compression", "saving", "checkpoints", "diagnostics", "integrations", "testing"),
    ),
    "product": (
        *("records", "run_folder", "plugins", "workers", "data", "models", "evaluation", "training", "runs"),
        *("serving", "demo", "cli", "__init__", "__main__"),
    ),
    "lab": tuple(
        f"cce_lab.{name}" for name in ("variants", "methods", "sweeps", "report", "theory", "verbs", "__init__")
    ),
}
PACKAGES = tuple(chain.from_iterable(STOREYS.values()))


def files(source: Path = SRC) -> list[Path]:
    found = sorted(source.rglob("*.py"))
    assert len(found) >= 15
    return found


def short(path: Path) -> str:
    """Its path, without that of the package cce."""
    return path.relative_to(SRC).as_posix().removeprefix("cce/")


def package_of(path: Path) -> str:
    first, second = path.relative_to(SRC).with_suffix("").parts[:2]
    return second if first == "cce" else f"{first}.{second}"


def imports(path: Path) -> set[str]:
    """Every dotted name that a file imports, at the top, inside functions or for types only."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_packages(path: Path) -> set[str]:
    """The packages of cce and cce_lab among them; `import cce` and `from cce import summary` are `__init__`."""
    packages = set()
    for name in imports(path):
        first, _, rest = name.partition(".")
        if first in ("cce", "cce_lab"):
            prefix, package = "" if first == "cce" else "cce_lab.", rest.partition(".")[0]
            packages.add(prefix + (package if prefix + package in PACKAGES else "__init__"))
    return packages


def python(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


# -- imports -----------------------------------------------------------------------------------------------------------


def test_every_package_has_its_storey():
    found = {package_of(path) for path in files()}
    assert found <= set(PACKAGES)
    assert len(PACKAGES) == len(set(PACKAGES))
    assert len(found) >= 35


@pytest.mark.slow
def test_a_package_imports_only_packages_above_it():
    order = {name: index for index, name in enumerate(PACKAGES)}
    wrong, seen = [], 0
    for path in files():
        package = package_of(path)
        for other in imported_packages(path):
            seen += 1
            if other != package and order[other] > order[package]:
                wrong.append(f"{short(path)} imports {other}")
    assert seen >= 600
    assert wrong == []


@pytest.mark.slow
def test_a_package_is_imported_through_its_init_and_nothing_inside_it():
    wrong, seen = [], 0
    for path in files(SOURCE):
        for name in sorted(imports(path)):
            package, *inside = name.removeprefix("cce.").split(".")
            if not name.startswith("cce.") or package not in PACKAGES or package == package_of(path):
                continue
            seen += 1
            if len(inside) > 1 or not set(inside) <= exports(package):
                wrong.append(f"{short(path)} imports {name}")
    assert seen >= 600
    assert wrong == []


def exports(package: str) -> set[str]:
    """What a package imports, at once or lazily; of a module, all names without underscores."""
    module = importlib.import_module(f"cce.{package}")
    is_lazy = "__getattr__" in vars(module)  # then its submodules, once they are loaded, are not public
    eager = {name for name, value in vars(module).items() if not (is_lazy and inspect.ismodule(value))}
    found = {name for name in {*eager, *(dir(module) if is_lazy else ())} if not name.startswith("_")}
    return found | set(getattr(module, "__all__", ()))


def is_public(name: str) -> bool:
    """Whether a dotted name is one of cce's `__all__`, or is exported by one of its packages or modules."""
    first, *inside = name.removeprefix("cce.").split(".")
    return first in cce.__all__ if not inside else len(inside) == 1 and inside[0] in exports(first)


@pytest.mark.slow
def test_the_lab_uses_public_names_only():
    used = [(short(path), name) for path in files(LAB) for name in sorted(imports(path)) if name.startswith("cce.")]
    assert len(used) >= 25
    assert [(path, name) for path, name in used if not is_public(name)] == []


@pytest.mark.parametrize("name", ["cce.colour", "cce.embeddings.base.Embedding", "cce.text._line", "cce.version.x"])
def test_what_is_not_public_is_seen(name):
    assert not is_public(name)
    assert is_public("cce.budget.Budget")
    assert is_public("cce.embeddings.METHODS")


def test_neither_library_nor_product_mentions_the_lab():
    assert [short(path) for path in files(SOURCE) if "cce_lab" in path.read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_training_knows_no_method():
    """It asks the class of a method (`training_defaults`) and `cce.diagnostics`; not even a name of one is written."""
    kinds = {kind.__name__ for kind in METHODS.values()}
    seen, wrong = 0, []
    for path in sorted((SOURCE / "training").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
        for node in ast.walk(tree):
            seen += isinstance(node, ast.Constant)
            if isinstance(node, ast.Constant) and node.value in METHODS and id(node) not in keys:
                wrong.append(f"{path.name}: {node.value!r}")
        wrong += [f"{path.name}: {kind}" for kind in kinds if kind in path.read_text(encoding="utf-8")]
    assert seen > 500
    assert wrong == []


def test_files_and_records_and_text_and_checks_do_without_torch():
    for name in ("version", "lazy", "checks", "text", "files", "signals", "records", "run_folder", "plugins"):
        assert {n for n in imports(SOURCE / f"{name}.py") if n.startswith("torch")} == set()


@pytest.mark.slow
def test_each_package_that_may_be_missing_is_imported_in_one_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert required == {"torch", "numpy", "numba", "tqdm", "safetensors"}
    required.remove("numba")  # comes along, and yet plain torch must do where it cannot be imported
    importers: dict[str, set[str]] = {}
    for path in files():
        for name in imports(path):
            package = name.partition(".")[0]
            if package not in {*required, *sys.stdlib_module_names, "cce", "cce_lab"}:
                importers.setdefault(package, set()).add(short(path))
    for package in ("numba", "llvmlite"):
        assert importers.pop(package) == {f"compiled/{name}.py" for name in ("instructions", "tiles")}
    assert importers.pop("pyarrow") == {f"data/arrow/{name}.py" for name in ("blocks", "tables")}
    for package in ("pytest", "hypothesis"):
        assert all(path.startswith("testing/") for path in importers.pop(package))
    assert importers["ray"] == {"workers.py"}
    assert importers["vl_convert"] == {"cce_lab/report/vega.py"}
    assert {package: paths for package, paths in importers.items() if len(paths) > 1} == {}


VERBS = ("demo", "plan", "prepare", "train", "sweep", "evaluate", "export", "predict", "embed", "pack", "inspect")
VERBS += ("report", "verify", "theory", "recipes", "page", "cite")
HELP = """
import sys, cce
cce.__version__, dir(cce)
from cce.cli import main
for words in ([], ["prepare", "table"], *([verb] for verb in sys.argv[1:])):
    try:
        main([*words, "--help"])
    except SystemExit:
        loaded = {"torch", "numpy", "numba", "pyarrow", "pytest"} & set(sys.modules)
        assert not loaded, (words, loaded)
"""


@pytest.mark.slow
def test_neither_the_package_nor_its_help_waits_for_torch():
    result = python("-c", HELP, *VERBS)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("usage: cce") == 2 + len(VERBS)


@pytest.mark.slow
def test_preparing_does_without_torch_and_training_without_pyarrow():
    for code, absent in (
        ("import cce.data.preparation.pipeline, cce.data.prepared", "torch"),
        ("import cce.data.prepared, cce.training, cce.runs", "pyarrow"),
    ):
        result = python("-c", f"{code}\nimport sys\nsys.exit({absent!r} in sys.modules)")
        assert result.returncode == 0, code


@pytest.mark.slow
def test_help_from_the_shell_comes_at_once():
    started = time.perf_counter()
    result = python("-X", "importtime", "-m", "cce", "--help")
    assert time.perf_counter() - started < 10  # torch alone takes seconds; loose, as machines are busy
    assert result.returncode == 0
    assert "usage: cce" in result.stdout
    assert " cce.cli" in result.stderr
    assert " torch" not in result.stderr


# -- the surface -------------------------------------------------------------------------------------------------------


def test_all_public_names_are_there():
    assert len(cce.__all__) == len(set(cce.__all__)) == 21
    for name in cce.__all__:
        assert getattr(cce, name) is not None
    packages = set(dir(cce)) - set(cce.__all__)
    assert {"embeddings", "models", "data", "schema", "training"} < packages
    assert all(inspect.ismodule(getattr(cce, name)) for name in packages)


def test_a_public_name_is_the_one_of_its_package():
    assert cce.create_embedding is importlib.import_module("cce.embeddings").create_embedding
    assert cce.summary is importlib.import_module("cce.diagnostics").summary
    assert cce.compress is importlib.import_module("cce.compression").compress


def test_what_torch_names_too_says_how_its_constructor_differs():
    torch = importlib.import_module("torch")
    public = {name: getattr(cce.embeddings, name) for name in exports("embeddings")} | vars(cce.optim)
    shared = {
        name: value
        for name, value in public.items()
        if inspect.isclass(value) and any(hasattr(module, name) for module in (torch.nn, torch.optim))
    }
    assert set(shared) == {"Embedding", "EmbeddingBag", "SGD", "Adam", "AdamW", "Adagrad"}
    for value in shared.values():
        opening = " ".join((value.__doc__ or "").split("\n    Ids")[0].split())
        assert "The constructor differs from torch's" in opening, value


def test_every_method_is_public():
    methods = {kind.__name__ for kind in cce.embeddings.METHODS.values()}
    assert len(methods) > 15
    assert methods <= exports("embeddings")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'cce' has no attribute 'colour'"):
        cce.colour  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'colour' from 'cce'"):
        from cce import colour  # noqa: F401
    assert not hasattr(cce, "import_everything")


def test_the_version_is_that_of_the_installed_package():
    assert importlib.import_module("importlib.metadata").version("clustered-embeddings") == cce.__version__


# -- habits ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_printed_and_nobody_exits_outside_the_command_line():
    wrong = [
        f"{short(path)}:{node.lineno}"
        for path in files()
        if package_of(path) not in ("cli", "__main__", "cce_lab.verbs")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit")
    ]
    assert wrong == []


@pytest.mark.slow
def test_every_file_begins_with_what_it_is():
    assert [str(path) for path in files() if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))] == []


# -- no method escapes its contract ------------------------------------------------------------------------------------

CONTRACTS = ("EmbeddingContract", "LinearContract")


def assigned(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Names that a class body sets, with what it sets them to."""
    return {
        target.id: statement.value
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def contract_classes(path: Path) -> list[tuple[str, str, set[str]]]:
    """Test classes of a file under contract: their name, the class they test, and the tests that they switch off."""
    found: dict[str, tuple[str, set[str]]] = dict.fromkeys(CONTRACTS, ("", set()))
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        parent = next((found[ast.unparse(base)] for base in node.bases if ast.unparse(base) in found), None)
        if parent is not None:
            values = assigned(node)
            tested = ast.unparse(values["table_class"]) if "table_class" in values else parent[0]
            off = {name for name, value in values.items() if name.startswith("test_") and ast.unparse(value) == "None"}
            if any(keyword.arg == "variant" for keyword in node.keywords):
                off |= importlib.import_module("cce.testing").ONCE_A_CLASS
            found[node.name] = (tested.removeprefix("cce.embeddings."), parent[1] | off)
    return [(name, *values) for name, values in found.items() if name not in CONTRACTS]


def all_contract_classes() -> list[tuple[str, str, set[str]]]:
    paths = sorted((TESTS / "embeddings").glob("test_*.py"))
    assert len(paths) >= 17
    return [found for path in paths for found in contract_classes(path)]


def class_names() -> set[str]:
    return {kind.__name__ for kind in importlib.import_module("cce.embeddings").METHODS.values()}


def test_every_method_is_under_contract():
    classes = [found for found in all_contract_classes() if found[0].startswith("Test")]
    assert len(classes) >= 13
    assert {tested for _, tested, _ in classes} == class_names()


def test_every_method_passes_every_test_of_the_contract_in_some_form():
    contract = importlib.import_module("cce.testing").EmbeddingContract
    names = {name for name in dir(contract) if name.startswith("test_")}
    assert len(names) >= 34
    escaped = {name: set(names) for name in class_names()}
    for _, tested, off in all_contract_classes():
        escaped[tested] &= off
    assert {name: tests for name, tests in escaped.items() if tests} == {}


def test_every_linear_method_is_under_the_linear_contract():
    linear = importlib.import_module("cce.embeddings").LinearEmbedding
    methods = importlib.import_module("cce.embeddings").METHODS
    under = set()
    for path in sorted((TESTS / "embeddings").glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and "LinearContract" in [ast.unparse(base) for base in node.bases]:
                under.add(ast.unparse(assigned(node)["table_class"]).removeprefix("cce.embeddings."))
    assert {kind.__name__ for kind in methods.values() if issubclass(kind, linear)} == under


def test_every_table_that_can_be_made_is_a_method():
    embeddings = importlib.import_module("cce.embeddings")
    for module in pkgutil.walk_packages(cce.__path__, "cce."):
        if module.name != "cce.__main__" and not module.name.startswith("cce.integrations."):
            importlib.import_module(module.name)
    kinds, found = [embeddings.Embedding], set()
    while kinds:
        kinds += (kind := kinds.pop()).__subclasses__()
        if not inspect.isabstract(kind) and kind.__module__.startswith("cce."):
            found.add(kind)
    assert found == {*embeddings.METHODS.values()}
    assert len(found) >= 14


def test_the_meta_test_sees_a_class_that_inherits_by_way_of_another(tmp_path):
    (tmp_path / "test_x.py").write_text(
        "class TestA(LinearContract):\n    table_class = cce.embeddings.A\n    test_one = None\n"
        "class TestB(TestA):\n    test_two = None\n"
        "class TestC:\n    table_class = C\n"
    )
    assert contract_classes(tmp_path / "test_x.py") == [
        ("TestA", "A", {"test_one"}),
        ("TestB", "A", {"test_one", "test_two"}),
    ]


def test_the_import_test_sees_every_kind_of_import(tmp_path):
    (tmp_path / "x.py").write_text(
        "import cce.cli.demo\nfrom cce import compiled, summary\nimport cce_lab\n"
        "def late():\n    from cce_lab.theory.figures import FIGURES\n"
        "if TYPE_CHECKING:\n    from cce.models import GMF\n"
    )
    assert imported_packages(tmp_path / "x.py") == {
        *("cli", "compiled", "__init__", "models", "cce_lab.__init__", "cce_lab.theory")
    }


def test_the_docs_name_the_methods_whose_bits_depend_on_the_machine():
    found = set()
    for path in sorted((TESTS / "embeddings").glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and "has_matrix_products" in (values := assigned(node)):
                tested = ast.unparse(values["table_class"]).removeprefix("cce.embeddings.")
                found.add(getattr(cce.embeddings, tested).method)
    text = (ROOT / "docs" / "traps.md").read_text(encoding="utf-8")
    equal, rounded = (
        re.search(rf"\*\*{words}\*\*(.*?)\n\n", text, re.DOTALL) for words in ("same bits", "equal up to rounding")
    )
    assert found == set(re.findall(r"`([a-z-]+)`", rounded[1])) == {"collide", "dhe", "low-rank", "mixed-dim", "tt"}
    named = set(re.findall(r"`([a-z-]+)`", equal[1]))
    assert named == set(cce.embeddings.list_methods()) - found
