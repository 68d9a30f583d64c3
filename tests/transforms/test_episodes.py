"""Loaders that are made for one episode and read once."""

from __future__ import annotations

from tests.transforms.support import check_transformed, codes, convert, place_of

MAKE = "def episode(n):\n    return DataLoader(TensorDataset(torch.randn(n, 4), torch.zeros(n).long()), batch_size=n)"
STEPS = """
for step in range(10):
    support, query = episode(5), episode(9)
    xs, ys = next(iter(support))
    xq, yq = query.__iter__().__next__()
    model(xs)
    F.cross_entropy(model(xq), yq).backward()
    optimizer.step()
"""


def test_what_is_read_once_stays_whole() -> None:
    conversion = convert(imports=MAKE, end=STEPS.replace("loss", "l"))
    text = place_of(conversion.new_text, "end")
    assert "prepare" not in text
    assert "xs, ys = next(iter(support))" in text


def test_only_episodes() -> None:
    conversion = convert(
        imports=MAKE,
        loss="xs, ys = next(iter(episode_loader))\nloss = F.cross_entropy(model(xs), ys)",
        batch="episode_loader = episode(5)",
    )
    assert "episode_loader = episode(5)\n" in conversion.new_text
    assert "prepare(episode_loader" not in conversion.new_text
    assert "ACC402" not in codes(conversion)  # the loop's own loader is shared out


def test_a_loader_that_is_made_anew_for_each_epoch_is_shared_out() -> None:
    end = """
    for epoch in range(3):
        fresh = DataLoader(data, batch_size=8, shuffle=True)
        for x, y in fresh:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    check_transformed(
        "end",
        end,
        """
        for epoch in range(3):
            fresh = DataLoader(data, batch_size=8, shuffle=True)
            fresh = accelerator.prepare(fresh)
            for x, y in fresh:
                optimizer.zero_grad()
                accelerator.backward(F.cross_entropy(model(x), y))
                optimizer.step()
        """,
    )


def test_an_iterator_over_the_data_set_is_shared_out() -> None:
    conversion = convert(
        ready="stream = iter(DataLoader(data, batch_size=8))",
        batch="xs, ys = next(stream)",
        loss="loss = F.cross_entropy(model(xs), ys)",
    )
    assert "accelerator.prepare(DataLoader(data, batch_size=8))" in conversion.new_text
