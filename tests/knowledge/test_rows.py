"""How rows are found: by name, by pattern, through bases and aliases, the user's before the shipped ones."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelify.knowledge import EFFECTS, KINDS, TRANSFERS, Argument, Knowledge, Row, RowError
from accelify.knowledge.row import parse_row

SHIPPED = Knowledge()


def transfer(knowledge: Knowledge, name: str) -> str | None:
    row = knowledge.row(name)
    return row.transfer if row is not None else None


def test_a_row_has_what_its_line_says() -> None:
    row = Knowledge(
        {
            "lab.save": "none effect=file.write content=0/obj,metrics path=1/file mutates=self,2 "
            "note=what the lab keeps"
        }
    ).row("lab.save")
    assert row == Row(
        "lab.save",
        "none",
        effect="file.write",
        path=(Argument(1, "file"),),
        content=(Argument(0, "obj"), Argument(None, "metrics")),
        mutates=(Argument(None, None, receiver=True), Argument(2, None)),
        note="what the lab keeps",
        table="[tool.accelify.models]",
    )


def test_all_arguments_and_axes() -> None:
    row = Knowledge({"lab.f": "sum axis=2/dim returns=torch.Tensor place=like:0"}).row("lab.f")
    assert row is not None
    assert (row.axis, row.returns, row.place) == (Argument(2, "dim"), "torch.Tensor", "like:0")
    shown = SHIPPED.row("print")
    assert shown is not None
    assert shown.content == (Argument(None, None, every=True),)


def test_the_longest_name_wins() -> None:
    knowledge = Knowledge(
        {
            "lab.*": "pure",
            "lab.f": "rows",
            "lab.deep.*": "linear",
            "lab.deep.log_*": "none",
            "lab.deep.log_loss*": "loss",
        }
    )
    assert transfer(knowledge, "lab.f") == "rows"
    assert transfer(knowledge, "lab.g") == "pure"
    assert transfer(knowledge, "lab.deep.f") == "linear"
    assert transfer(knowledge, "lab.deep.deeper.f") == "linear"
    assert transfer(knowledge, "lab.deep.log_all") == "none"
    assert transfer(knowledge, "lab.deep.log_loss_all") == "loss"
    assert transfer(knowledge, "labs.f") is None
    assert transfer(knowledge, "lab") is None


def test_a_pattern_of_classes_says_nothing_of_their_methods() -> None:
    knowledge = Knowledge({"lab.*": "new kind=module"})
    row = knowledge.row("lab.Net")
    assert row is not None
    assert (row.name, row.returns) == ("lab.*", "lab.Net")
    assert knowledge.row("lab.Net.frobnicate") is None


def test_a_module_with_a_pattern_of_its_own_is_no_function() -> None:
    knowledge = Knowledge({"lab.*": "pure", "lab.nets.*": "linear"})
    assert transfer(knowledge, "lab.nets") is None
    assert transfer(knowledge, "lab.nets.small") == "linear"
    assert transfer(knowledge, "lab.f") == "pure"


def test_methods_through_bases() -> None:
    knowledge = Knowledge(
        {
            "class lab.Base": "torch.nn.Module",
            "class lab.Net": "lab.Mixin, lab.Base",
            "class lab.Mixin": "",
            "lab.Mixin.cuda": "none",
            "lab.Base.cuda": "pure",
            "lab.Base.frobnicate": "rows",
            "lab.Base.build": "new kind=module returns=self",
        }
    )
    assert knowledge.bases("lab.Net") == ("lab.Mixin", "lab.Base")

    def method(name: str) -> str:
        row = knowledge.method("lab.Net", name)
        assert row is not None
        return row.transfer

    assert method("cuda") == "none"
    assert method("frobnicate") == "rows"
    assert method("state_dict") == "pure"
    built = knowledge.method("lab.Net", "build")
    assert built is not None
    assert built.returns == "lab.Net"
    assert knowledge.row("lab.Net.frobnicate") == knowledge.method("lab.Net", "frobnicate")


def test_classes_by_pattern_begin_with_a_capital() -> None:
    knowledge = Knowledge({"class lab.*Net": "lab.Base", "class lab.*": "lab.Any", "lab.Base.f": "rows"})
    assert knowledge.bases("lab.BigNet") == ("lab.Base",)
    assert knowledge.bases("lab.Other") == ("lab.Any",)
    assert knowledge.bases("lab.functional") == ()
    row = knowledge.method("lab.BigNet", "f")
    assert row is not None
    assert row.transfer == "rows"


def test_rings_of_bases_and_aliases_end() -> None:
    knowledge = Knowledge(
        {"class lab.A": "lab.B", "class lab.B": "lab.A", "alias lab.c": "lab.d", "alias lab.d": "lab.c"}
    )
    assert knowledge.method("lab.A", "frobnicate") is None
    assert knowledge.canonical("lab.c") in ("lab.c", "lab.d")


def test_methods_of_receivers_of_unknown_type() -> None:
    assert SHIPPED.method(None, "item") == SHIPPED.method("lab.Unknown", "item")
    row = SHIPPED.method(None, "item")
    assert row is not None
    assert row.name == "?.item"
    assert SHIPPED.method(None, "frobnicate") is None


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"),
        ("torch.nn.modules.loss.CrossEntropyLoss", "torch.nn.CrossEntropyLoss"),
        ("tensorboardX.SummaryWriter", "torch.utils.tensorboard.SummaryWriter"),
        ("tqdm.auto.tqdm", "tqdm.tqdm"),
        ("tqdm.notebook.tqdm", "tqdm.tqdm"),
        ("gym.spaces.Box", "gymnasium.spaces.Box"),
        ("torch.relu", "torch.relu"),
        ("lab.f", "lab.f"),
    ],
)
def test_aliases(name: str, canonical: str) -> None:
    assert SHIPPED.canonical(name) == canonical
    assert SHIPPED.row(name) == SHIPPED.row(canonical)


def test_users_rows_stand_before_the_shipped_ones() -> None:
    knowledge = Knowledge(
        {
            "torch.relu": "mix",
            "?.item": "pure",
            "print": "none",
            "alias lab.DataLoader": "torch.utils.data.DataLoader",
        }
    )
    assert transfer(knowledge, "torch.relu") == "mix"
    assert transfer(knowledge, "torch.tanh") == "rows"
    unknown = knowledge.method(None, "item")
    assert unknown is not None
    assert unknown.transfer == "pure"
    shown = knowledge.row("print")
    assert shown is not None
    assert shown.effect == ""
    loader = knowledge.row("lab.DataLoader")
    assert loader is not None
    assert loader.kind == "loader"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("lab.f", "", "lab.f: no transfer: write one of same, pure"),
        ("lab.f", "row", "'row' is no transfer: write one of same, pure"),
        (
            "lab.f",
            "rows axes=0",
            "there is no key 'axes': did you mean axis=? The keys are kind, effect, when, unless",
        ),
        ("lab.f", "rows axis", "'axis' is no key=value"),
        ("lab.f", "rows axis=", "'axis=' is no key=value"),
        ("lab.f", "rows axis=*", "axis= is one argument, as in axis=0/dim"),
        ("lab.f", "rows axis=-1", "'-1' is no argument: write 0/name, 0, name, self, or * for all"),
        ("lab.f", "none effect=log.write content=0,,1", "'' is no argument"),
        (
            "lab.f",
            "none mutates=self mutates=0",
            "mutates= stands twice: write several arguments as mutates=0/a,1/b",
        ),
        ("lab.f", "none effect=log", "'log' is no effect: write one of terminal.write"),
        ("lab.f", "new", "new says of what kind: kind= one of module"),
        ("lab.f", "new kind=net", "'net' is no kind: write one of module"),
        ("lab.f", "pure kind=module", "kind= is for the transfer new alone"),
        ("lab.f", "none path=0", "path= is the path of an effect: add effect= one of"),
        ("lab.f", "none content=0", "content= is what an effect writes: add effect= one of"),
        ("lab.f", "none returns=torch.Tensor", "none returns nothing"),
        ("lab.f", "pure returns=1x", "'1x' is no type: write its dotted name"),
        ("lab.f", "pure place=gpu", "'gpu' is no place: write host, device, default"),
        ("lab.*.f", "pure", "a name is dotted words, with * in the last one only"),
        ("lab..f", "pure", "a name is dotted words"),
        ("class lab.A", "B-C", "write class a.b(c.d), in dotted names"),
        ("alias lab.A", "", "write alias a.b = c.d, in dotted names"),
        ("alias lab.A", "lab.B, lab.C", "write alias a.b = c.d, in dotted names"),
    ],
)
def test_rows_that_make_no_sense(name: str, text: str, says: str) -> None:
    with pytest.raises(RowError) as error:
        Knowledge({name: text})
    sentence = str(error.value)
    assert says in sentence
    assert name.split()[-1] in sentence
    assert "\n" not in sentence


words = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(lambda word: not keyword.iskeyword(word))
arguments = st.one_of(
    st.builds(Argument, st.integers(0, 20), st.none() | words),
    # `self` stands for the receiver.
    st.builds(Argument, st.none(), words.filter(lambda word: word != "self")),
    st.just(Argument(None, None, every=True)),
    st.just(Argument(None, None, receiver=True)),
)
several = st.lists(arguments, min_size=1, max_size=3).map(tuple)


@given(
    transfer=st.sampled_from([word for word in TRANSFERS if word not in ("new", "none")]),
    effect=st.sampled_from(EFFECTS),
    path=several,
    content=several,
    mutates=several,
    note=st.lists(words, min_size=1).map(" ".join),
)
def test_what_is_written_is_read(
    transfer: str,
    effect: str,
    path: tuple[Argument, ...],
    content: tuple[Argument, ...],
    mutates: tuple[Argument, ...],
    note: str,
) -> None:
    text = (
        f"{transfer} effect={effect} path={','.join(map(str, path))} content={','.join(map(str, content))} "
        f"mutates={','.join(map(str, mutates))} note={note}"
    )
    row = parse_row("lab.f", text)
    assert row == Row(
        "lab.f", transfer, effect=effect, path=path, content=content, mutates=mutates, note=note
    )


@given(st.text(max_size=40))
def test_any_text_is_a_row_or_an_error_in_one_sentence(text: str) -> None:
    try:
        row = parse_row("lab.f", text, "here")
    except RowError as error:
        assert str(error).startswith("here: lab.f: ")
    else:
        assert row.transfer in TRANSFERS
        assert row.kind == "" or row.kind in KINDS


@given(st.lists(words, min_size=1, max_size=5).map(".".join))
def test_any_name_can_be_asked_for(name: str) -> None:
    knowledge = Knowledge({"a.*": "pure"})
    assert (knowledge.row(name) is not None) >= name.startswith("a.")
    assert knowledge.canonical(knowledge.canonical(name)) == knowledge.canonical(name)
    assert isinstance(knowledge.bases(name), tuple)
