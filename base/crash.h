/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named places between two steps that other processes can see, where tests/crash kills the process to look at what it
 * leaves behind. Each stands beside a note "killed after ...: what is visible, who repairs it". Nothing is compiled
 * without -DCNRE_CRASH_POINTS; with it,
 *
 *   CNRE_CRASH_AT=name[:n]   the process kills itself with SIGKILL at its n-th pass (default 1) of that point,
 *   CNRE_CRASH_ONCE=file     but only if it can make this file: of several incarnations one dies, and the file says so.
 */
#ifndef CNRE_BASE_CRASH_H
#define CNRE_BASE_CRASH_H

#ifdef CNRE_CRASH_POINTS
void cnre_crash_point(const char *name);
#define CNRE_CRASH_POINT(name) cnre_crash_point(name)
#else
#define CNRE_CRASH_POINT(name) ((void)0)
#endif

#endif
