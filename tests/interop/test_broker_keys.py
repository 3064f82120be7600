"""Every setting of a real broker may stand in a file that is read here, and none is unknown."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kafkalog.manager_config import LOG_DIR, ManagerConfig, used_keys
from kafkalog.server_properties import parse_server_properties
from kafkalog.settings import OWN_PREFIX, settings_of

from .kafka_maven import KafkaInstall

SOURCE = Path(__file__).with_name("BrokerKeys.java")
# Ours, among those of Kafka that they belong to.
OURS = {"log.cleaner.hash.algorithm"}


def broker_settings(kafka: KafkaInstall) -> dict[str, tuple[str, str]]:
    """Name -> type and default of all settings of a broker."""
    done = subprocess.run(
        ["java", "-cp", f"{kafka.libraries}/*", str(SOURCE)],
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: (kind, default) for name, kind, default in lines}


def test_import_broker_settings_uses_or_lists_each(kafka: KafkaInstall) -> None:
    """A key that looks misspelt is an error, so none of a broker's own may look so."""
    names = broker_settings(kafka)
    assert 300 < len(names)
    others = [name for name in names if name not in used_keys()]
    found = parse_server_properties("".join(f"{name}=x\n" for name in others))
    assert others == [each.key for each in found.ignored]
    assert all(each.reason for each in found.ignored)


def test_import_used_keys_are_settings_of_a_broker(kafka: KafkaInstall) -> None:
    """Also those that the golden file leaves out, with the broker's type and default."""
    names = broker_settings(kafka)
    used = {key for key in used_keys() if not key.startswith(OWN_PREFIX)}
    assert used - set(names) == OURS
    assert "STRING" == names[LOG_DIR][0]
    for key in ("replica.high.watermark.checkpoint.interval.ms",):
        ours = next(each for each in settings_of(ManagerConfig).values() if each.key == key)
        assert (ours.kind.upper(), str(ours.default)) == names[key]
