/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the control plane share: one answer. Private to control*.c. */
#ifndef CNRE_MANAGER_CONTROL_INNER_H
#define CNRE_MANAGER_CONTROL_INNER_H

#include "manager/manager.h"
#include "manager/peer.h"

#include <jansson.h>

struct answer {
	int status;
	json_t *json;      /* on success; owned */
	char message[256]; /* on failure */
};

void control_refuse(struct answer *answer, int status, const char *message);

/*
 * A text in a memfd that cannot be written to: no bound by the socket's buffer, and the asker cannot be made to wait for us. The
 * descriptor, or -errno. A large one is emptied by a later tick.
 */
int control_reply_open(const char *text, size_t bytes);

/* The model that a request names, or the only one that is served; NULL: none, and the answer says so. */
const struct served_model *control_find_model(const struct manager *manager, const json_t *request, struct answer *answer);

/* {"verb": "experts"}, of one "layer" or of all; {"verb": "why", "layer": 3, "expert": 17}. Questions. */
void control_experts(struct manager *manager, const json_t *request, struct answer *answer);
void control_why(struct manager *manager, const json_t *request, struct answer *answer);

/* {"verb": "trace", "action": "record" | "stop" | "status"}; *fd is set to -1 where it is taken over. */
void control_trace(struct manager *manager, const json_t *request, int *fd, struct answer *answer);

/* {"verb": "kv", "action": "export" | "import"}; *fd as above. {"verb": "kv"} alone is a question. */
void control_kv(struct manager *manager, const struct peer *peer, const json_t *request, int *fd, struct answer *answer);
void control_set_kv_ram(struct manager *manager, const char *value, struct answer *answer);
void control_set_vram(struct manager *manager, const char *value, struct answer *answer);

/*
 * {"verb": "usage", "action": "import" | "export" | "status"} and {"verb": "warm", "action": "start" | "stop" | "status"};
 * *fd as above. 1: it is a question that anybody may ask.
 */
int control_is_usage_question(const json_t *request);
void control_usage(struct manager *manager, const json_t *request, int *fd, struct answer *answer);
int control_is_warm_question(const json_t *request);
void control_warm(struct manager *manager, const json_t *request, int *fd, struct answer *answer);

#endif
