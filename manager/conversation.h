/* SPDX-License-Identifier: Apache-2.0 */
/* What an attached client says on its socket, and how its end is noticed. */
#ifndef CNRE_MANAGER_CONVERSATION_H
#define CNRE_MANAGER_CONVERSATION_H

#include "manager/loop.h"

/* Callbacks of a session's socket and pidfd. */
void conversation_ready(struct loop_source *source, uint32_t events);
void conversation_process_ended(struct loop_source *source, uint32_t events);

#endif
