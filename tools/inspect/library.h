/* SPDX-License-Identifier: Apache-2.0 */
/* Where the probes of clients are: the libcnre that each has mapped, or the client's own program where it is linked in. */
#ifndef CNRE_TOOLS_INSPECT_LIBRARY_H
#define CNRE_TOOLS_INSPECT_LIBRARY_H

#include "tools/inspect/inspect.h"

/* Attaches the verb's probes of the manager, in the program of this process. 0, or -errno with a message. */
int library_attach_manager(struct inspect *inspect, uint32_t process, char message[INSPECT_MESSAGE_BYTES]);

/*
 * Attaches the verb's probes to every library that is in use now and was not before: again whenever somebody has attached. While
 * none is, to the one that lies beside the manager, so that a client's first wait is seen.
 */
int library_attach_clients(struct inspect *inspect, char message[INSPECT_MESSAGE_BYTES]);
void library_close(struct inspect *inspect);

#endif
