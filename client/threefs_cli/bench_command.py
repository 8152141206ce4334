"""`threefs bench`: the load generator, which reads its options by itself, as fio does."""

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": [], "allow_extra_args": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION]... [JOB_FILE]...")
@click.pass_context
def bench(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Put load on a cluster or on any directory, with the options, job files and JSON of fio.

    `threefs bench --help` shows all options. docs/load-generator.md explains them with examples.
    """
    from threefs_bench.load.command import main  # only here: no other command needs what it imports

    ctx.exit(main(arguments))
