// SPDX-License-Identifier: MIT OR Apache-2.0
/** Prints a line. */
public class Hello {
    public static void main(String[] words) {
        System.out.println("hello");
    }
}
