# Needs make and Python 3.10, 3.11 or 3.12; everything else is installed into .venv.
#     make test PYTHON=python3.10 VENV=.venv310    another Python, in an environment of its own
#     make install EXTRAS=arrow,test               without Spark

PYTHON ?= $(shell for p in python3.11 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
EXTRAS ?= arrow,data,kafka,spark,bench,test
WORKERS ?= 2
CYCLES ?= 1000
PARTITIONS ?= 1
SOAK ?= tests/soak
SEEDS ?= 1000
FROM ?= 0

comma := ,
NEEDS := raylog needs Python 3.10, 3.11 or 3.12
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# PATIENCE: for how many seconds a test may last, where it gets little of the processors.
PYTEST = $(BIN)/python -m pytest $(if $(PATIENCE),--timeout $(PATIENCE))
METRICS := $(VENV)/with-metrics
MEMORY := tests/cluster/test_memory.py
OWN_CLUSTERS := $(filter-out $(MEMORY),$(sort $(wildcard tests/cluster/test_*.py)))
IN_SECOND_ROW := $(filter tests/cluster/test_s% %/test_recovery.py %/test_restore.py,$(OWN_CLUSTERS))
# The tested versions fit together with Ray's extra `default` from Python 3.11 on only.
HAS_METRICS := $(if $(PYTHON),$(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info >= (3, 11) else "")'))

# Without its compiled files each process of an actor compiles raylog anew.
unexport PYTHONDONTWRITEBYTECODE

# One thing after the other, also under `make -j`.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help install lint test test-the-rest test-metrics test-unit test-thorough test-simulated test-streams test-cluster test-memory test-own-clusters test-shared-cluster test-data test-kafka test-kafka-java test-spark test-spark-system-java test-spark-wheel test-packaging
.PHONY: simulate simulate-groups simulate-transactions simulate-coordinators mutations soak bench clean demo newcomer docs

help: ## show this list (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## create .venv with the tested versions, and raylog in editable form

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "$(NEEDS), and found no python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' || { \
	    echo "$(NEEDS); $(PYTHON) is $$($(PYTHON) -V 2>&1). Choose another: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade -c constraints.txt pip
	PYTHONWARNINGS='ignore:Editable installation' \
	    $(PIP) install --quiet -c constraints.txt --build-constraint constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

lint: $(STAMP) ## ruff, mypy (strict), the import contracts, and the figures of the house
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.house

test: test-streams test-memory test-the-rest ## lint and every test folder

# Tests on a real Ray wait half of their time, so there are two rows of them, as long as each other. What waits for nothing
# but processors takes what they leave.
test-the-rest: $(STAMP)
	@$(BIN)/python -m tests.rows "$(MAKE) test-own-clusters OWN_CLUSTERS='$(filter-out $(IN_SECOND_ROW),$(OWN_CLUSTERS))'" \
	    "$(MAKE) test-shared-cluster test-spark test-own-clusters OWN_CLUSTERS='$(IN_SECOND_ROW)'" --spare "$(MAKE) PATIENCE=600 \
	    lint test-unit test-packaging $(if $(HAS_METRICS),$(METRICS)/.installed) test-thorough test-simulated"
	@$(if $(HAS_METRICS),$(MAKE) --no-print-directory test-metrics,echo "tests/metrics are left out: they need Python 3.11 or 3.12")

test-unit: $(STAMP) ## unit tests: no Ray, no sleeping, seconds
	$(PYTEST) -n $(WORKERS) -m 'not thorough' tests/unit

test-thorough: $(STAMP) ## the unit tests that try every position, every step, or many seeds: a minute or two
	$(PYTEST) -n $(WORKERS) -m thorough tests/unit

test-simulated: $(STAMP) ## a small set of seeds of the simulated cluster, and with each rule switched off: two minutes
	$(PYTEST) -n $(WORKERS) tests/simulated

test-streams: $(STAMP) ## the streams between processes, over real sockets: seconds
	$(PYTEST) -n $(WORKERS) tests/streams

test-cluster: test-memory test-own-clusters test-shared-cluster ## tests that start a real Ray on this machine

# One process a file: Ray remembers for the life of a process how it was first told to authenticate.
test-own-clusters: $(STAMP)
	@set -e; for tests in $(OWN_CLUSTERS); do $(PYTEST) $$tests; done

# It fills the memory that the machine has left up to a bound, so nobody else may take any meanwhile.
test-memory: $(STAMP)
	$(PYTEST) $(MEMORY)

test-shared-cluster: $(STAMP)
	$(PYTEST) tests/cluster/clients tests/data tests/kafka --ignore=tests/kafka/java

test-data: $(STAMP) ## Ray Data reads and writes topics on a real cluster: a minute
	$(PYTEST) tests/data

test-kafka: $(STAMP) ## clients of Kafka on a real cluster: a minute
	$(PYTEST) tests/kafka --ignore=tests/kafka/java

test-kafka-java: $(STAMP) ## Kafka's own tools, Connect and Spark's connector, with a Java 17: three minutes
	$(PYTEST) tests/kafka/java

# All in one process, since Spark takes long to start; what starts and stops it is by itself.
test-spark: $(STAMP) ## Spark reads and writes topics on a real Ray: three minutes
	$(PYTEST) tests/spark/test_session.py
	$(PYTEST) tests/spark --ignore=tests/spark/test_session.py

test-spark-system-java: $(STAMP) ## the same with a Java 17 of the system, and an error where there is none
	$(BIN)/python -m tests.spark.with_system_java $(MAKE) --no-print-directory test-spark

test-spark-wheel: $(STAMP) ## the same without any Java of the system: Spark runs with the one from the wheel
	$(BIN)/python -m tests.spark.without_java $(MAKE) --no-print-directory test-spark

# Ray has the endpoint only with what its extra `default` brings, and every Ray that finds that starts more processes.
# So there is an environment of its own for it, on top of the other one.
$(METRICS)/.installed: $(STAMP)
	@$(BIN)/python -m venv --without-pip $(METRICS)
	@for site in $(METRICS)/lib/python3*/site-packages; do \
	    echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	    > $$site/below.pth; done
	$(METRICS)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt 'raylog[metrics]'
	@touch $@

test-metrics: $(METRICS)/.installed ## what Ray's Prometheus endpoint tells of a real cluster
	$(METRICS)/bin/python -m pytest tests/metrics

test-packaging: $(STAMP) ## build the wheel, install it in a fresh environment, import it
	$(PYTEST) tests/packaging

SIMULATE = $(BIN)/python -m tests.simulator.simulate $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --from $(FROM)) --workers $(WORKERS)

simulate: $(STAMP) ## many seeds, SEEDS=1000 FROM=0; or one with all that happens in it, SEED=17 [MUTATION=name]
	$(SIMULATE) $(if $(MUTATION),--mutation $(MUTATION))

simulate-groups: $(STAMP) ## the same of consumer groups, their members and coordinators
	$(SIMULATE) --of groups

simulate-transactions: $(STAMP) ## the same of transactions
	$(SIMULATE) --of transactions

simulate-coordinators: $(STAMP) ## the same of what all coordinators promise
	$(SIMULATE) --of coordinators

mutations: $(STAMP) ## which of the first SEEDS=1000 seeds catches each switched-off rule; writes the table [ONLY=name]
	$(BIN)/python -m tests.simulator.search_mutations --seeds $(SEEDS) --workers $(WORKERS) $(if $(ONLY),--only $(ONLY))

# OUTRUN_SECONDS, BACKLOG_GB: how much the tests of a client's memory take.
soak: $(STAMP) ## faults on a real Ray under a writer, CYCLES=1000, and more: an hour and longer (CYCLES=30: minutes)
	CYCLES=$(CYCLES) PARTITIONS=$(PARTITIONS) $(PYTEST) -s $(SOAK)

demo: $(STAMP) ## a replicated topic, a leader killed under load, a Spark job: a minute, and nothing left behind
	@$(BIN)/python -m examples.demo

newcomer: ## git clone, make demo, make test, with nothing set up and nothing typed in between: how long each takes
	@$(PYTHON) -m tests.newcomer $(TARGETS)

docs: $(STAMP) ## write docs/configuration.md anew, from the definitions
	$(BIN)/python -m raylog.api.reference.configuration_reference > docs/configuration.md

bench: $(STAMP) ## measure every part, as ratios against raw limits of this machine
	$(BIN)/python -m bench

clean: ## remove .venv, builds and caches
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
