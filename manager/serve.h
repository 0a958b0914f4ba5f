/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the manager: everything opened in order, the core loop, everything closed. It takes plain values; where
 * they come from (command line, file, environment) is main.c's and settings.c's business.
 */
#ifndef CNRE_MANAGER_SERVE_H
#define CNRE_MANAGER_SERVE_H

#include "manager/listener.h"
#include "manager/loader.h"
#include "manager/manager.h"

#define SERVE_MESSAGE_BYTES 512

struct serve_setup {
	uint64_t budget_bytes;            /* what budget.c came to */
	enum cnre_backing first_backing;
	int numa_node;                    /* or CNRE_NUMA_… */
	const char *policy;
	uint32_t pool;                    /* enum policy_pool */
	const char *usage;                /* folder of histories; NULL: none */
	uint32_t clients_max;
	struct loader_setup loader;
	struct listener_setup listener;
	int verify_loads;
	int64_t read_timeout_ns;          /* of a drive; 0: none */
	const char *digests;              /* manifest; NULL: none */
	int64_t scrub_ns;                 /* 0: off */
	const char *drive_weights;        /* of the primary and its mirrors; NULL: measured */
};

/*
 * serve_open - everything but the models' catalogs, which are in manager->model[] already (serve_add_model)
 *
 * Returns 0, or -errno with one line that says what to do. On failure nothing is left open.
 */
int serve_open(struct manager *manager, const struct serve_setup *setup, char message[SERVE_MESSAGE_BYTES]);

/* Reads a checkpoint's catalog into the next place of manager->model[]. Before serve_open. */
int serve_add_model(struct manager *manager, const struct model_source *source, char message[SERVE_MESSAGE_BYTES]);

/*
 * The same for a catalog that is there: of a view, checkpoint is the model that it is a view of, else NULL. Takes the
 * catalog over. 0 or -E2BIG: too many models; then it stays the caller's.
 */
int serve_add_catalog(struct manager *manager, struct model_catalog *catalog, struct served_model *checkpoint,
		      char message[SERVE_MESSAGE_BYTES]);

/* The core loop: until a signal, or until the idle exit. */
void serve_run(struct manager *manager);

/* Tells clients by closing their sockets; their mapped leases stay readable until they let go. */
void serve_close(struct manager *manager);

#endif
