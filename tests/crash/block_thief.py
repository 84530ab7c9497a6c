"""A process without Spark's secret that asks a running load for the blocks in which its tasks travel.

Started as ``python -m tests.crash.block_thief``: it says ``ready``, reads the ports to try from standard input, and
prints one JSON line for each port and block: what it got, in bytes and as text, or how it was refused. Any user of the
machine could do the same: who listens where stands in ``/proc/net/tcp`` for everybody.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext

#: Spark broadcasts each task binary; the first few numbers are enough for a load of one stage.
BLOCKS = tuple(f"broadcast_{number}_piece0" for number in range(2))
#: No second try, and a short one: some ports speak no Spark at all, and never answer.
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.io.maxRetries": "0",
    "spark.shuffle.io.connectionTimeout": "5s",
}


def main() -> None:
    spark = SparkContext(conf=SparkConf().setMaster("local[1]").setAll(list(_CONF.items())))
    spark.setLogLevel("OFF")
    _say("ready")
    ports = [int(word) for word in sys.stdin.read().split()]
    with ThreadPoolExecutor(len(ports)) as threads:
        for answers in threads.map(partial(_asked, spark), ports):
            for answer in answers:
                _say(json.dumps(answer))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _asked(spark: SparkContext, port: int) -> list[dict[str, Any]]:
    return [{"port": port, "block": block, **_answer(spark, port, block)} for block in BLOCKS]


def _answer(spark: SparkContext, port: int, block: str) -> dict[str, Any]:
    jvm: Any = spark._jvm
    blocks = jvm.org.apache.spark.SparkEnv.get().blockManager().blockTransferService()
    try:
        buffer = blocks.fetchBlockSync("127.0.0.1", port, "driver", block, None).nioByteBuffer()
    except Py4JJavaError as error:
        return {"refused": str(error.java_exception)}
    lz4 = jvm.org.apache.spark.io.LZ4CompressionCodec(spark._jsc.sc().getConf())
    packed = jvm.java.io.ByteArrayInputStream(jvm.org.apache.spark.network.util.JavaUtils.bufferToArray(buffer))
    content = bytes(lz4.compressedInputStream(packed).readAllBytes())
    return {"bytes": len(content), "text": content.decode("latin-1")}


if __name__ == "__main__":
    main()
