/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manager that is looked at, and its clients, by what it says itself over its socket. Everything here is read-only, and what
 * it says is input: names are for showing, numbers are bounded by their types.
 */
#ifndef CNRE_TOOLS_INSPECT_SUBJECT_H
#define CNRE_TOOLS_INSPECT_SUBJECT_H

#include "tools/ctl/search.h"

#include <jansson.h>
#include <stdint.h>

#define SUBJECT_MODELS_MAX 32u
#define SUBJECT_CLIENTS_MAX 4096u         /* attached at any time while it is looked at */
#define SUBJECT_MANAGERS_MAX 64u          /* one process after another */
#define SUBJECT_NAME_BYTES 64u
#define SUBJECT_NO_MODEL UINT32_MAX

struct subject_client {
	uint32_t session, process, model; /* SUBJECT_NO_MODEL */
	char name[SUBJECT_NAME_BYTES];
	uint64_t leased;                  /* when it was last asked */
	int is_attached;                  /* then */
};

struct subject {
	struct search_places places;
	char path[SEARCH_PATH_BYTES];     /* of the socket */
	json_t *status;                   /* the first answer, with models and directories */
	uint32_t model_count;
	char model[SUBJECT_MODELS_MAX][128];
	uint32_t manager_count;
	uint32_t manager[SUBJECT_MANAGERS_MAX];
	uint32_t client_count;
	struct subject_client *client;    /* [SUBJECT_CLIENTS_MAX] */
	uint32_t clients_lost;            /* beyond that */
};

/*
 * given: a path; or process: whose socket is looked for, the manager's or its keeper's; or neither, and it is found as cnrectl
 * does. 0, or -errno with a message.
 */
int subject_open(struct subject *subject, const char *given, uint32_t process, char message[CTL_MESSAGE_BYTES]);
void subject_close(struct subject *subject);

/* Asks again who the manager is and who is attached. 0, 1 (somebody is new), or -errno with a message. */
int subject_refresh(struct subject *subject, char message[CTL_MESSAGE_BYTES]);

/* One verb of the manager, as cnrectl asks it; a new reference. */
int subject_ask(const struct subject *subject, const char *verb, json_t **ret_answer, char message[CTL_MESSAGE_BYTES]);

int subject_is_manager(const struct subject *subject, uint32_t process);
/* The last one of this process; NULL: it never was attached. */
const struct subject_client *subject_client_of(const struct subject *subject, uint32_t process);
const struct subject_client *subject_session(const struct subject *subject, uint32_t session);

#endif
