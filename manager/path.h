/* SPDX-License-Identifier: Apache-2.0 */
/* Where the socket goes when nobody says: /run/cnre/managerd.sock for root, the user's runtime directory otherwise. */
#ifndef CNRE_MANAGER_PATH_H
#define CNRE_MANAGER_PATH_H

#include <stddef.h>

/* `configured` or the default; makes the default's directory (0755 for root, 0700 for a user). 0 or -errno with a line. */
int path_of_socket(const char *configured, char *path, size_t bytes, char *message, size_t message_bytes);

#endif
