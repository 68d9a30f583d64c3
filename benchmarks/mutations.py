"""Faults seeded into the converted fixtures, for `verify_mutations.py`: what a converter, or a person, gets wrong.

Each one is reached in a whole run of its fixture and changes what the run does on 2 processes, in numbers, files,
effects or work. Faults that the fixtures have no place for, because leaving the line out changes nothing there:
- `wait_for_everyone` left out: nothing is read back that another process wrote. One that a single process reaches is
  in the table instead.
- an optimizer alone or a model alone not prepared: the runtime trains the parameters of either alike, and every
  hand-made accumulation steps under `sync_gradients` already.
- `unwrap_model` left out, at a state dict or at a whole model: the runtime writes what the plain script would.
- `gather` in place of `gather_for_metrics`: the last shares are shorter, not filled up, at the lengths that these
  loaders have.
- another seed on every process where `shard_batch` cuts the batch: it gives out the main process's.
- a broadcast or `free_memory`: none is in a converted fixture. Decisions that the processes take apart are in the
  table by their gather or reduce left out.
The fixtures `ddp_*` have no plain original to be held against.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One fault.

    Args:
        kind: what is wrong, in a few words; no two are the same.
        fixture: folder under `fixtures/`.
        old: text of the converted script; occurs once.
        new: what takes its place.
        at: pieces of text, each of one statement only, of the statements that may be pointed to: the mutated one, or
            those that show what it feeds.
        file: the file of the project that `old` is in.
    """

    kind: str
    fixture: str
    old: str
    new: str
    at: tuple[str, ...]
    file: str = ""


MUTATIONS = (
    # Effects of every process
    Mutation(
        "guard of a print left out",
        "image_classification",
        "accelerator.print('epoch {} [",
        "print('epoch {} [",
        ("print('epoch {} [",),
    ),
    Mutation(
        "guard of a file left out",
        "language_model",
        """            if accelerator.is_main_process:
                with open(args.save, 'wb') as f:
                    torch.save(accelerator.unwrap_model(model).state_dict(), f)
""",
        """            with open(args.save, 'wb') as f:
                torch.save(accelerator.unwrap_model(model).state_dict(), f)
""",
        ("with open(args.save, 'wb')", "torch.save("),
    ),
    Mutation(
        "guard of makedirs left out",
        "progress_bar_and_writer",
        "if accelerator.is_main_process and not os.path.exists(args.save_dir):",
        "if not os.path.exists(args.save_dir):",
        ("if not os.path.exists(args.save_dir)", "os.makedirs(args.save_dir)"),
    ),
    Mutation(
        "guard of a writer left out",
        "progress_bar_and_writer",
        "'runs')) if accelerator.is_main_process else None",
        "'runs'))",
        ("writer = SummaryWriter(",),
    ),
    Mutation(
        "guard of a progress bar left out",
        "progress_bar_and_writer",
        "desc='epoch %d' % epoch, disable=not accelerator.is_local_main_process)",
        "desc='epoch %d' % epoch)",
        ("progress = tqdm(", "enumerate(progress)", "progress.set_postfix("),
    ),
    Mutation(
        "guard of logging left out",
        "metrics_lists",
        """    if not accelerator.is_main_process:
        logging.disable(logging.INFO)
""",
        "",
        ('logger.info("device', 'logger.info(f"Epoch'),
    ),
    Mutation(
        "guard of np.save left out",
        "lbfgs_closure",
        """        if accelerator.is_main_process:
            np.save('wave%d.npy' % step, predicted.numpy())
""",
        """        np.save('wave%d.npy' % step, predicted.numpy())
""",
        ("np.save(",),
    ),
    Mutation(
        "torch.save by every process",
        "loaders_in_dict",
        "accelerator.save(accelerator.unwrap_model(net)",
        "torch.save(accelerator.unwrap_model(net)",
        ("torch.save(",),
    ),
    # Figures
    Mutation(
        "reduce of a mean left out",
        "accumulation_by_hand",
        """    epoch_loss = accelerator.reduce(epoch_loss, reduction="mean")
""",
        "",
        ("return epoch_loss / len(train_dl)", "| train loss"),
    ),
    Mutation(
        "reduce of a sum left out",
        "sum_loss_uneven",
        """    train_loss = accelerator.reduce(train_loss, reduction="sum")
""",
        "",
        ('"train", round(',),
    ),
    Mutation(
        "reduce of a sum as a mean",
        "vae",
        'running = accelerator.reduce(running, reduction="sum")',
        'running = accelerator.reduce(running, reduction="mean")',
        ("running = accelerator.reduce(", "mean loss {:.4f}"),
    ),
    Mutation(
        "gather before a count left out",
        "rnn_classification",
        """        best, y = accelerator.gather_for_metrics((best, y))
""",
        "",
        ("test accuracy on {} series",),
    ),
    Mutation(
        "gathered twice",
        "image_classification",
        """            output, labels = accelerator.gather_for_metrics((output, labels))
""",
        """            output, labels = accelerator.gather_for_metrics((output, labels))
            output, labels = accelerator.gather_for_metrics((output * 1, labels))
""",
        ("gather_for_metrics((output * 1", "gather_for_metrics((output, labels))", "print('test loss {:.4f}"),
    ),
    Mutation(
        "own part of a list in place of the gathered one",
        "model_outputs",
        "titles.extend(title)",
        'titles.extend(batch["title"])',
        ("titles.extend(", "valid loss {valid_loss:.4f}"),
    ),
    Mutation(
        "metric divided by the padded length",
        "project",
        "return correct / len(loader.dataset)",
        "return correct / (len(loader) * 16)",
        ("return correct /", "accuracy {accuracy:.3f}"),
        file="engine.py",
    ),
    Mutation(
        "weight of a mean left out",
        "siamese",
        "loss_fn(u, v, same).item() * len(same)",
        "loss_fn(u, v, same).item()",
        ("loss_fn(u, v, same).item()", "accelerator.print(report)"),
    ),
    # Decisions
    Mutation(
        "gather before a decision left out",
        "vision_transformer",
        "output, labels = self.accelerator.gather_for_metrics((self.model(images), labels))",
        "output, labels = self.model(images), labels",
        ("output, labels = self.model(images)", "valid {valid_loss:.5f}", "if valid_loss < best", "best.pt"),
    ),
    Mutation(
        "gather before a schedule left out",
        "progress_bar_and_writer",
        """            out, y = accelerator.gather_for_metrics((out, y))
""",
        "",
        ("scheduler.step(loss)", "'valid/loss'", "valid loss {:.4f}", "is_best = accuracy > best_accuracy"),
    ),
    Mutation(
        "reduce before a decision left out",
        "loaders_in_dict",
        """            phase_loss, phase_corrects = accelerator.reduce((phase_loss, phase_corrects), reduction="sum")
""",
        "",
        (
            "epoch_loss = phase_loss",
            "epoch_acc = phase_corrects",
            "loss {:.4f} accuracy {:.4f}",
            "if phase == 'val'",
            "best val accuracy",
        ),
    ),
    Mutation(
        "stop by a share of the error",
        "regression_by_hand",
        "if error.item() < 1e-3 or",
        "if error.item() / accelerator.num_processes < 1e-3 or",
        ("if error.item() / accelerator", "test: error {:.6f}"),
    ),
    # Gradients
    Mutation(
        "reduction of a summed loss left out",
        "sum_loss_uneven",
        'accelerator.backward(loss, reduction="sum")',
        "accelerator.backward(loss)",
        ("accelerator.backward(", "optimizer.step()"),
    ),
    Mutation(
        "a mean loss summed over processes",
        "variable_era",
        "accelerator.backward(loss)",
        'accelerator.backward(loss, reduction="sum")',
        ("accelerator.backward(", "optimizer.step()"),
    ),
    Mutation(
        "backward on the plain loss",
        "accumulation_by_hand",
        "accelerator.backward(loss)",
        "loss.backward()",
        ("loss.backward()", "optimizer.step()"),
    ),
    Mutation(
        "clipping of the first parameter only",
        "language_model",
        "accelerator.clip_grad_norm_(model.parameters(), args.clip)",
        "accelerator.clip_grad_norm_([next(model.parameters())], args.clip)",
        ("accelerator.clip_grad_norm_(", "accelerator.backward(loss)", "p.data.add_("),
    ),
    Mutation(
        "accumulation left out",
        "accumulation_carried",
        "with accelerator.accumulate(model):",
        "if True:",
        ("if True:", "accelerator.backward(loss)", "optimizer.step()"),
    ),
    Mutation(
        "last window scaled by its own length",
        "accumulation_by_hand",
        "num_steps=ACCUMULATION_STEPS, scale_last_window=False",
        "num_steps=ACCUMULATION_STEPS",
        ("gradient_accumulation_plugin=", "accelerator.backward(loss)", "optimizer.step()"),
    ),
    # Preparation
    Mutation(
        "model and optimizer not prepared",
        "gradient_penalty",
        "critic, optimizer, dataloader = accelerator.prepare(critic, optimizer, dataloader)",
        "dataloader = accelerator.prepare(dataloader)",
        ("accelerator.prepare(", "accelerator.backward(loss)", "optimizer.step()"),
    ),
    Mutation(
        "one of two models not prepared, where noise is drawn",
        "gan",
        """netG, netD, optimizerD, optimizerG, dataloader = accelerator.prepare(
    netG, netD, optimizerD, optimizerG, dataloader
)""",
        "netG, optimizerG, dataloader = accelerator.prepare(netG, optimizerG, dataloader)",
        (
            "accelerator.prepare(",
            "accelerator.backward(loss_real)",
            "accelerator.backward(loss_fake)",
            "optimizerD.step()",
            "netD_%d.pth",
        ),
    ),
    Mutation(
        "training loader not prepared",
        "rnn_classification",
        """net, optimizer, train_loader, test_loader = accelerator.prepare(
    net, optimizer, train_loader, test_loader
)""",
        "net, optimizer, test_loader = accelerator.prepare(net, optimizer, test_loader)",
        ("accelerator.prepare(", "(x, y) in enumerate(train_loader)", "accelerator.backward(loss)"),
    ),
    Mutation(
        "test loader not prepared",
        "metrics_lists",
        """    model, optimizer, train_data_loader, test_data_loader = accelerator.prepare(
        model, optimizer, train_data_loader, test_data_loader
    )""",
        """    model, optimizer, train_data_loader = accelerator.prepare(
        model, optimizer, train_data_loader
    )""",
        (
            "accelerator.prepare(",
            "features, targets in data_loader",
            "accelerator.gather_for_metrics(",
            'f"test accuracy',
        ),
    ),
    Mutation(
        "shard_batch left out",
        "hand_made_batches",
        """    xb, yb = accelerator.shard_batch(xb, yb)
""",
        "",
        ('xb, yb = get_batch("train")', "logits, loss = model(xb, yb)", "accelerator.backward(loss)"),
    ),
    Mutation(
        "another seed on every process",
        "regression_by_hand",
        "torch.manual_seed(7)",
        "torch.manual_seed(7 + accelerator.process_index)",
        (
            "torch.manual_seed(",
            "slope = torch.randn(",
            "points = torch.randn(",
            "accelerator.backward(error)",
            "if error.item()",
        ),
    ),
    Mutation(
        "another environment on every process",
        "reinforce",
        "env = Catch(SEED)",
        "env = Catch(SEED + accelerator.process_index)",
        ("env = Catch(", "accelerator.backward(policy_loss)", "test average score"),
    ),
    # Rates
    Mutation(
        "learning rate multiplied by the number of processes",
        "image_classification",
        "lr=args.lr, momentum=0.9",
        "lr=args.lr * accelerator.num_processes, momentum=0.9",
        ("optimizer = optim.SGD(", "optimizer.step()"),
    ),
    Mutation(
        "scheduler not prepared",
        "scheduler_per_batch",
        """    model, optimizer, train_loader, valid_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, valid_loader, scheduler
    )""",
        """    model, optimizer, train_loader, valid_loader = accelerator.prepare(
        model, optimizer, train_loader, valid_loader
    )""",
        (
            "accelerator.prepare(",
            "scheduler = OneCycleLR(",
            "scheduler.step()",
            "optimizer.step()",
            "scheduler.get_last_lr()",
        ),
    ),
    Mutation(
        "scheduler stepped by one process",
        "image_classification",
        """        scheduler.step()
""",
        """        if accelerator.is_main_process:
            scheduler.step()
""",
        ("if accelerator.is_main_process:", "scheduler.step()", "optimizer.step()"),
    ),
    Mutation(
        "optimizer stepped by one process",
        "vae",
        """        optimizer.step()
""",
        """        if accelerator.is_main_process:
            optimizer.step()
""",
        ("if accelerator.is_main_process:", "optimizer.step()", "accelerator.backward("),
    ),
    # What only one process reaches
    Mutation(
        "evaluation with a gather on one process",
        "project",
        "accuracy = evaluate(accelerator, model, test_loader, device)",
        "accuracy = evaluate(accelerator, model, test_loader, device) if accelerator.is_main_process else 0.0",
        ("accuracy = evaluate(", "accelerator.gather_for_metrics("),
        file="train.py",
    ),
    Mutation(
        "backward on one process",
        "regression_by_hand",
        "    accelerator.backward(error)\n",
        "    if accelerator.is_main_process:\n        accelerator.backward(error)\n",
        ("if accelerator.is_main_process", "accelerator.backward(error)", "p -= 0.1 * p.grad"),
    ),
    Mutation(
        "wait_for_everyone on one process",
        "rnn_classification",
        "accelerator.wait_for_everyone()\n",
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n",
        ("if accelerator.is_main_process", "accelerator.wait_for_everyone()"),
    ),
)
