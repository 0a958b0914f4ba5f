/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager's notification protocol: one datagram to $NOTIFY_SOCKET. No library needed; does nothing without one. */
#ifndef CNRE_MANAGER_NOTIFY_H
#define CNRE_MANAGER_NOTIFY_H

/* Sends e.g. "READY=1\nSTATUS=serving 2 models". 0 sent, 1 nobody asked, or -errno. */
int notify_send(const char *text);

#endif
