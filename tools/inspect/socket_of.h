/* SPDX-License-Identifier: Apache-2.0 */
/* The socket that a process listens on, by the kernel's own tables. */
#ifndef CNRE_TOOLS_INSPECT_SOCKET_OF_H
#define CNRE_TOOLS_INSPECT_SOCKET_OF_H

#include "tools/ctl/search.h"

#include <stdint.h>

/* 0; -ESRCH (no such process), -ENOENT (it listens on no path), -EACCES (its descriptors are another user's), with a message. */
int socket_of(uint32_t process, char ret_path[SEARCH_PATH_BYTES], char message[CTL_MESSAGE_BYTES]);

#endif
