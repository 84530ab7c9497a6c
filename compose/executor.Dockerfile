# Spark executors on Kubernetes (docs/spark-clusters.md):  docker build -f compose/executor.Dockerfile -t kafka-ingest-executor:4.2.0 .
# Apache's image gives Spark and its entry point, and has Ubuntu 22.04 with Python 3.10. Executors need the Python of the
# driver, so Spark is copied beside the Python of compose/Dockerfile. The package's own code comes with each submission.
FROM apache/spark:4.2.0-scala2.13-java17-ubuntu AS spark

FROM python:3.11.14-slim-bookworm

# Spark's entry point starts executors under tini; libnss-wrapper is for user ids that /etc/passwd does not have.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libnss-wrapper openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 185 spark \
    && useradd --system --uid 185 --gid spark --home-dir /nonexistent spark

COPY requirements-executor.txt /tmp/requirements-executor.txt
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/requirements-executor.txt

COPY --from=spark /opt/entrypoint.sh /opt/decom.sh /opt/
COPY --from=spark --chown=spark:spark /opt/spark /opt/spark
ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=/usr/local/bin/python3

USER spark
WORKDIR /opt/spark/work-dir
ENTRYPOINT ["/opt/entrypoint.sh"]
